"""Explains requests that have ended, out of their records."""

from typing import Any

from penstock.router import request_id
from penstock.router.explaining.errors import NotRemembered
from penstock.router.explaining.explanation import explain
from penstock.router.explaining.recent import Stories
from penstock.router.explaining.story import Story
from penstock.router.generation.request_record import RequestRecord


class Explainer:
    """Is a journal that gives the stories of requests to `stories`, which keep the latest `most`, and explains them
    when it is asked."""

    keeps_texts = False

    def __init__(self, stories: Stories, most: int) -> None:
        self._stories = stories
        self._most = most

    def write(self, record: RequestRecord, status: int, path: str | None = None) -> None:
        """Takes a record. One that never came to a model, or that no key could ask for, since the server itself has
        sent it for one, is not kept, for it would drive out others."""
        is_asked_for = record.key is None or record.owner is not None
        if self._most and is_asked_for and (record.generations or record.attempts):
            self._stories.tell(Story.of(record, request_id.current() or "", status))

    async def explain(self, id: str, owner: bytes | None) -> dict[str, Any]:
        """Returns the explanation of a request. Raises NotRemembered."""
        story = await self._stories.find(id, owner) if self._most else None
        if story is None:
            raise NotRemembered(id, self._most)
        return explain(story)

    async def close(self) -> None:
        """Does nothing, since stories end with their server."""
