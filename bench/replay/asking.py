"""Asks a server for recorded answers once more."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from penstock.bench.replay.recorded import Recorded

MAX_LINE = 1 << 26
"""The most bytes of an event."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to a request that was asked again, or why there is none. `seconds` is how long it took."""

    recorded: Recorded
    seconds: float
    answer: bytes = b""
    receipt: dict[str, Any] | None = None
    error: str = ""

    @property
    def difference(self) -> str:
        """Says how the answer differs from the recorded one; empty if it does not."""
        if self.error or self.receipt is None:
            return self.error or "the server gives no receipts"
        digests = [answer["sha256"] for answer in self.receipt["answers"]]
        model = self.receipt["model"]["digest"]
        if digests == [*self.recorded.digests] and self.recorded.model in ("", model):
            return ""
        if self.recorded.model not in ("", model):
            return f"the model is another one: {model}, and it was {self.recorded.model}"
        changed = [str(index) for index, pair in enumerate(zip(digests, self.recorded.digests, strict=False))
                   if pair[0] != pair[1]] or ["their number"]
        return f"other tokens: {', '.join(changed)} of {len(self.recorded.digests)} answers"


@dataclass(frozen=True, slots=True)
class Pace:
    """When requests are sent: `speed` times as fast as they came, or, if that is 0, as soon as one of `clients` has
    its answer."""

    speed: float
    clients: int


async def ask_all(
    url: str, records: Sequence[Recorded], pace: Pace, api_key: str | None, told: Callable[[Outcome], None]
) -> None:
    """Asks for all recorded answers, in the order in which they were asked for, and tells of each as it comes."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    places = asyncio.Semaphore(len(records) if pace.speed else pace.clients)
    async with aiohttp.ClientSession(
            headers=headers, timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0),
            read_bufsize=MAX_LINE) as session, asyncio.TaskGroup() as tasks:
        begin, ordered = time.monotonic(), sorted(records, key=lambda each: each.at)

        async def run(record: Recorded) -> None:
            try:
                told(await ask(session, url.rstrip("/"), record))
            finally:
                places.release()

        for record in ordered:
            if pace.speed:
                due = begin + (record.at - ordered[0].at) / pace.speed
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await places.acquire()
            tasks.create_task(run(record))


async def ask(session: aiohttp.ClientSession, url: str, record: Recorded) -> Outcome:
    """Asks for one recorded answer, which is to be computed, wherever it may be kept."""
    begin = time.monotonic()
    headers = {"content-type": "application/json", "penstock-answer": record.answer, "penstock-receipt": "true",
               "cache-control": "no-store"}
    try:
        async with session.post(url + record.path, data=record.body, headers=headers) as response:
            content, is_stream = await response.read(), response.content_type == "text/event-stream"
    except (aiohttp.ClientError, OSError) as error:
        return Outcome(record, time.monotonic() - begin, error=f"{type(error).__name__}: {error}")
    seconds = time.monotonic() - begin
    if response.status != 200:
        return Outcome(record, seconds, content, error=f"{response.status}: {content[:500].decode(errors='replace')}")
    try:
        return Outcome(record, seconds, content, receipt_in(content, is_stream))
    except (ValueError, KeyError, TypeError, IndexError):
        return Outcome(record, seconds, content, error=f"no receipt in {content[-200:].decode(errors='replace')!r}")


def receipt_in(content: bytes, is_stream: bool) -> dict[str, Any]:
    """Returns the receipt of an answer, whole or streamed. Raises KeyError, ValueError, TypeError or IndexError if it
    has none."""
    if is_stream:
        content = content.rpartition(b"event: receipt\ndata: ")[2].partition(b"\n")[0]
    answer = orjson.loads(content)
    receipt: dict[str, Any] = (answer[0] if isinstance(answer, list) else answer)["receipt"]
    return receipt
