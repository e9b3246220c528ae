"""The engines of this router: one for each group of shards."""

from collections.abc import Sequence

from penstock.router.engine.engine import Engine


class Engines:
    """Knows which engine serves a request. There is one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def choose(self, model: str | None = None, adapter: str | None = None, prefix: Sequence[int] = ()) -> Engine:
        """The engine for a request to `model` with `adapter`, preferring one that has computed `prefix`."""
        return self._engine
