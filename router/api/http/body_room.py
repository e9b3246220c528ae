"""Room for large bodies: so many bytes of them are in memory at once, and the others wait, unread, for their turn."""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

from aiohttp import web

from penstock.router.api.http.access import Handler
from penstock.router.limits import Limits

SMALL = 1 << 16
"""Bodies up to so many bytes need no room: what a request takes in any case covers them."""
MEDIUM = 1 << 18
"""Bodies up to so many bytes have room of their own, so that they need not wait for larger ones."""
_NUM_BODIES = 4
"""For how many bodies of each size there is room at the least. Work on one of the largest may take the event loop some
50 ms at once, for which everybody waits."""
_BYTES_PER_TOKEN = 8
"""How long a body is that has a token, at the most as a rule: as many prompts as there are permits have room."""


class Room:
    """Room for `size` bytes, which is given in the order in which it is asked for."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, number: int) -> None:
        """Waits until there is room for a `number` of bytes, at most all that there ever is, and takes it."""
        if not self._waiting and number <= self._left:
            self._left -= number
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((number, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(number)
            else:
                self._waiting.remove((number, turn))
                self._admit()
            raise

    def give_back(self, number: int) -> None:
        """Gives back the room that `take` took."""
        self._left += number
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._left:
            number, turn = self._waiting.popleft()
            self._left -= number
            turn.set_result(None)


class BodyRoom:
    """Gives room to the bodies of requests, until they are answered."""

    def __init__(self, limits: Limits) -> None:
        self._rooms = [(size, Room(room)) for size, room in _sizes(limits)]

    async def enter(self, request: web.Request, length: int) -> None:
        """Waits for room for a body of so many bytes, at most the longest that is taken."""
        room = next(room for size, room in self._rooms if length <= size)
        await room.take(length)
        request[_LEAVE] = partial(room.give_back, length)


ROOM = web.AppKey("room", BodyRoom)
_LEAVE = web.RequestKey("leave_room", partial[None])


def least_room(payload_limit: int) -> int:
    """Returns how many bytes of bodies may be in memory in any case, however few tokens a request may have."""
    return _NUM_BODIES * sum(_ends(payload_limit))


def _ends(payload_limit: int) -> Sequence[int]:
    """Returns the longest body of each size."""
    return [MEDIUM, payload_limit] if payload_limit > MEDIUM else [payload_limit]


def _sizes(limits: Limits) -> Sequence[tuple[int, int]]:
    """Returns, for each size of bodies, the longest one and how much room there is."""
    return [(end, max(_NUM_BODIES * end, limits.max_concurrent_requests * min(
        end, _BYTES_PER_TOKEN * limits.max_input_tokens))) for end in _ends(limits.payload_limit)]


@web.middleware
async def leave_room(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Gives the room of the request's body back once it is answered."""
    try:
        return await handler(request)
    finally:
        if leave := request.get(_LEAVE):
            leave()
