"""A gate that events of answers pass, once they may."""

from abc import ABC, abstractmethod
from collections import deque

from penstock.router.engine.stream import Event
from penstock.router.generation.answer import Answer


class Gate(ABC):
    """Takes events of answers, holds them, and gives those that have passed in turn."""

    def __init__(self) -> None:
        self._held: dict[int, list[Event]] = {}
        self._passed: deque[tuple[Answer, Event]] = deque()

    @property
    def num_passed(self) -> int:
        """How many answers have passed whose last event has not been taken."""
        return sum(event.ending is not None for _, event in self._passed)

    def next(self) -> tuple[Answer, Event] | None:
        """Takes the next event of an answer that has passed; None if there is none now."""
        return self._passed.popleft() if self._passed else None

    @abstractmethod
    async def take(self, answer: Answer, event: Event) -> None:
        """Takes an event. Raises RouterError for an answer that may not pass."""

    def _whole(self, answer: Answer, event: Event) -> list[Event]:
        """Holds an event. Returns all of its answer where it is the last, and none before."""
        self._held.setdefault(answer.index, []).append(event)
        return [] if event.ending is None else self._held.pop(answer.index)
