"""The engines of this router, one for each group of shards."""

from penstock.router.engine.engine import Engine


class Engines:
    """Knows which engine serves a request. For now there is one group, and so one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def choose(self) -> Engine:
        """Returns the engine for a request."""
        return self._engine
