"""Whoever explains where the time of requests went."""

from typing import Any, Protocol


class Explains(Protocol):
    """Explains to clients why their requests, which have ended, took as long as they did."""

    async def explain(self, id: str, owner: bytes | None) -> dict[str, Any]:
        """Returns the explanation of an owner's request, by its id or that of its answer, as it stands in JSON. Raises
        NotRemembered."""
        ...
