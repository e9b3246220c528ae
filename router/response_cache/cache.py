"""The cache of answers: it finds those that were kept, has equal requests in flight share one computation, and keeps
new ones."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Self

from penstock.router.engine.any_engine import AnyEngine
from penstock.router.engine.receiver import Receiver
from penstock.router.engine.request import Request
from penstock.router.metrics.caches import HIT, MISS, SHARED, SKIPPED, CacheMetrics
from penstock.router.response_cache.backend import Backend, Bounds, Circuit, Kept
from penstock.router.response_cache.flight import Flight
from penstock.router.response_cache.recording import Recording, Unreadable
from penstock.router.scheduling.promise import Deadline

Submit = Callable[[Receiver, Sequence[int]], None]
"""A function with the parameters of `AnyEngine.submit`."""
MAX_WAITING = 4096
"""How many answers may wait to be kept."""
MAX_AT_ONCE = 256
"""How many of them are kept by one write."""


class Use(Enum):
    """Says how far a request may use kept answers: it takes and renews them, only renews its own, or does neither."""

    ALL = "all"
    RENEW = "renew"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Found:
    """Says where an answer comes from, and for how many seconds it was kept."""

    outcome: str
    age: float | None = None

    def __str__(self) -> str:
        return self.outcome if self.age is None else f"{self.outcome}; age={int(self.age)}"


class _Place(NamedTuple):
    """The name of a computation in flight: equal requests share it if they are as urgent, and as much in need of their
    bits; those with deadlines share none, for each is promised by itself."""

    key: bytes
    priority: int
    needs_bits: bool
    deadline: Deadline | None

    @classmethod
    def of(cls, request: Request, key: bytes) -> Self:
        return cls(key, request.priority, request.needs_bits, request.deadline)


class ResponseCache:
    """Keeps the answers of engines in `backend`. With `is_shared` the clients of all API keys have their answers in
    common."""

    def __init__(self, backend: Backend, bounds: Bounds, metrics: CacheMetrics, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self.metrics = metrics
        self._bounds = bounds
        self._circuit = Circuit(backend, metrics)
        self._flights: dict[_Place, Flight] = {}
        self._waiting: list[tuple[_Place, Flight, bytes]] = []
        self._writer: asyncio.Task[None] | None = None

    async def look(
        self, engine: AnyEngine, asked: Sequence[tuple[Request, bytes | None]], use: Use
    ) -> list[tuple[Submit, Found]]:
        """Looks for the answers to requests, each by its key; one without is not to be looked for. Returns of each the
        function that has a receiver told it, be it computed or not, and where it comes from."""
        keys = {key for request, key in asked if key is not None and _Place.of(request, key) not in self._flights}
        kept = await self._circuit.get([*keys]) if keys and use is Use.ALL else {}
        return [self._found(engine, request, key, use, kept) for request, key in asked]

    def _found(
        self, engine: AnyEngine, request: Request, key: bytes | None, use: Use, kept: Mapping[bytes, Kept]
    ) -> tuple[Submit, Found]:
        if key is None or use is Use.NONE:
            self.metrics.asked(SKIPPED)
            return engine.submit, Found(SKIPPED)
        if key in kept and (recording := self._read(kept[key])) is not None:
            self.metrics.asked(HIT)
            return lambda receiver, _: _tell(recording, receiver), Found(HIT, kept[key].age)
        place = _Place.of(request, key)
        outcome = SHARED if use is Use.ALL and place in self._flights else MISS
        self.metrics.asked(outcome)
        return lambda receiver, _: self._submit(engine, place, receiver, use), Found(outcome)

    async def close(self) -> None:
        """Waits until the answers that have come are kept, and ends connections."""
        if self._writer is not None:
            await self._writer
        await self._circuit.close()

    def _read(self, kept: Kept) -> Recording | None:
        try:
            return Recording.decode(kept.content)
        except Unreadable:
            self.metrics.failed()
            return None

    def _submit(self, engine: AnyEngine, place: _Place, receiver: Receiver, use: Use) -> None:
        """Has a receiver join the computation of its answer, or begins a new one, if there is none or it is to be
        renewed."""
        flight = self._flights.get(place)
        if flight is not None and use is Use.ALL:
            flight.join(receiver)
            return
        flight = Flight(receiver, lambda flight: self._land(engine, place, flight))
        flight.join(receiver)
        self._flights[place] = flight
        try:
            engine.submit(flight)
        except BaseException:
            self._forget(place, flight)
            raise

    def _land(self, engine: AnyEngine, place: _Place, flight: Flight) -> None:
        """Keeps the answer of a flight; until that is done others may still join it."""
        is_sure = flight.request.needs_bits or {facts.bits for facts in engine.kinds} <= {flight.request.bits}
        if not (flight.is_whole and flight.is_undisturbed and is_sure):
            self._forget(place, flight)
            return
        content = flight.recording.encode()
        if len(content) > self._bounds.entry or len(self._waiting) >= MAX_WAITING:
            self.metrics.dropped()
            self._forget(place, flight)
            return
        self._waiting.append((place, flight, content))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:MAX_AT_ONCE], self._waiting[MAX_AT_ONCE:]
            try:
                if await self._circuit.put({place.key: content for place, _, content in some}):
                    self.metrics.kept(sum(len(content) for *_, content in some))
            finally:
                for place, flight, _ in some:
                    self._forget(place, flight)

    def _forget(self, place: _Place, flight: Flight) -> None:
        if self._flights.get(place) is flight:
            del self._flights[place]


def _tell(recording: Recording, receiver: Receiver) -> None:
    recording.tell(receiver, time.monotonic())
