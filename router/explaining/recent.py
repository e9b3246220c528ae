"""The requests that have ended lately, for those who ask where their time went."""

from collections import OrderedDict
from typing import Protocol

from penstock.router.explaining.story import Story


class Stories(Protocol):
    """Keeps the stories of requests, in this process or in another one."""

    def tell(self, story: Story) -> None:
        """Takes a story in."""

    async def find(self, id: str, owner: bytes | None) -> Story | None:
        """Returns the story of an owner's request that has this id, or whose answer has; None if it is not known."""
        ...


class Recent:
    """Keeps the latest stories, at most `most`. Each is of bounded length."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._stories: OrderedDict[tuple[bytes | None, str], Story] = OrderedDict()
        self._ids: dict[tuple[bytes | None, str], str] = {}
        """The ids of requests by those of their answers."""

    def tell(self, story: Story) -> None:
        place = story.owner, story.id
        self._forget(place)
        self._stories[place] = story
        if story.answer_id is not None:
            self._ids[story.owner, story.answer_id] = story.id
        if len(self._stories) > self._most:
            self._forget(next(iter(self._stories)))

    def _forget(self, place: tuple[bytes | None, str]) -> None:
        story = self._stories.pop(place, None)
        if story is None or story.answer_id is None:
            return
        if self._ids.get((story.owner, story.answer_id)) == story.id:  # and no later one has the answer
            del self._ids[story.owner, story.answer_id]

    async def find(self, id: str, owner: bytes | None) -> Story | None:
        return self._stories.get((owner, id)) or self._stories.get((owner, self._ids.get((owner, id), id)))
