"""A step of a pipeline, whichever kind it is of."""

from collections.abc import Mapping
from typing import Any, Protocol

Values = Mapping[str, Any]
"""Those of the request, and those that the steps so far have made, by their names."""


class Step(Protocol):
    """Makes a value of others."""

    async def start(self) -> None:
        """Tries it, before any request comes. Raises InvalidArgument if it can't be used."""

    async def made_of(self, values: Values) -> Any:
        """Returns what it makes of its inputs. Raises RouterError."""

    async def close(self) -> None:
        """Ends what it has begun."""


class PlainStep:
    """A step that begins nothing."""

    async def start(self) -> None:
        """Does nothing."""

    async def close(self) -> None:
        """Does nothing."""
