"""How many lines of batches are asked at once, and how many answers wait to be stored, over all batches of a router."""

import asyncio
from collections.abc import Callable

from penstock.router.api.http.body_room import Room
from penstock.router.store.records import AnsweredLine

KEPT_BYTES = 1 << 20
"""How many bytes of answers may wait to be stored before no more lines are asked."""
ANSWER_BYTES = 1 << 10
"""How many of them an answer takes beside its text."""


class Window:
    """The lines that are asked at once, of all batches: as many as yield `num_sequences` sequences, which it says now,
    and fewer of long ones. One that yields more is asked alone. A line leaves its place to the next one as soon as it
    is answered; none is asked while answers of KEPT_BYTES wait to be stored."""

    def __init__(self, num_sequences: Callable[[], int], num_bytes: int) -> None:
        self._num_sequences = num_sequences
        self._num_bytes = num_bytes
        self._room = Room(num_bytes)
        self._num_kept = 0
        self._may_ask = asyncio.Event()
        self._may_ask.set()

    @property
    def is_full(self) -> bool:
        """Whether answers have to be stored before another line is asked."""
        return self._num_kept >= KEPT_BYTES

    async def take(self, length: int, num_sequences: int) -> int:
        """Waits until a line of so many bytes may be asked, which yields so many sequences. Returns what is to be given
        back."""
        share = max(self._num_bytes // max(self._num_sequences(), 1), 1)
        size = min(max(length, share * num_sequences), self._num_bytes)
        while self.is_full:
            await self._may_ask.wait()
        await self._room.take(size)
        return size

    def give_back(self, size: int) -> None:
        """Leaves the place of a line that is not asked any more."""
        self._room.give_back(size)

    def keep(self, answer: AnsweredLine) -> None:
        """Counts an answer that waits to be stored."""
        self._num_kept += ANSWER_BYTES + len(answer.content)
        self._note()

    def let_go(self, answer: AnsweredLine) -> None:
        """Counts an answer no more, which is stored, or dropped."""
        self._num_kept -= ANSWER_BYTES + len(answer.content)
        self._note()

    def _note(self) -> None:
        if self.is_full:
            self._may_ask.clear()
        else:
            self._may_ask.set()
