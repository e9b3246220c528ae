"""A request to a pipeline, once the steps before its answer are done."""

from dataclasses import dataclass
from typing import Protocol

from aiohttp import web


class After(Protocol):
    """The steps behind an answer, which make another text of it."""

    @property
    def streams(self) -> bool:
        """Whether they take an answer piece by piece, rather than whole."""

    async def made_of(self, text: str) -> str:
        """Returns what the steps make of an answer, or of a piece of one. Raises RouterError."""


@dataclass(frozen=True, slots=True)
class Piped:
    """Names the pipeline that was asked, and the model that answers for it, behind which there may be steps."""

    pipeline: str
    model: str
    after: After | None = None


PIPED = web.RequestKey("piped", Piped)
