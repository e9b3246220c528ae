"""An answer of a server elsewhere, which has begun."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import aiohttp
import orjson

from penstock.router.foreign.attempt import Attempt, Outcome
from penstock.router.foreign.errors import SourceFailed

WHOLE = 1 << 20
"""Answers up to so many bytes are taken whole before a client gets any of them, so that another server can take the
place of one that breaks off."""
EVENTS = "text/event-stream"
_DATA = re.compile(rb"^data:(.*)\r?\n", re.MULTILINE)
"""The data of an event, or its first line."""
_FAILURES = {"overloaded": Outcome.OVERLOADED, **dict.fromkeys(
    ("generation", "healthcheck", "incomplete_generation", "internal", "source"), Outcome.FAILED)}
"""The types of errors after which another server is asked."""


@dataclass(slots=True)
class Answer:
    """The head of an answer, and what of its body has come: all of it, or of a stream up to the first event."""

    attempt: Attempt
    response: aiohttp.ClientResponse
    pause_timeout: float
    first: bytes = b""
    is_whole: bool = False
    """Whether all has come."""

    @classmethod
    async def begun(cls, attempt: Attempt, response: aiohttp.ClientResponse, pause_timeout: float) -> Self:
        """Waits for the beginning of the body. Raises ClientError and OSError where it breaks off before."""
        answer = cls(attempt, response, pause_timeout)
        first = bytearray()
        while len(first) < WHOLE and not (answer.is_stream and _DATA.search(first)):
            part = await response.content.readany()
            if not part:
                answer.is_whole = True
                break
            first += part
        answer.first = bytes(first)
        return answer

    @property
    def source(self) -> str:
        """The URL of the server."""
        return self.attempt.source

    @property
    def status(self) -> int:
        """The status, as HTTP has it."""
        return self.response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, whose names have no case."""
        return self.response.headers

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream of events."""
        return self.response.content_type == EVENTS and self.response.status == 200

    @property
    def is_json(self) -> bool:
        """Whether it is JSON."""
        return self.response.content_type == "application/json"

    @property
    def failure(self) -> Outcome | None:
        """The outcome of a stream that begins with an error of the server's own, of which TGI tells by an event, with
        the status of success."""
        found = _DATA.search(self.first) if self.is_stream else None
        with suppress(orjson.JSONDecodeError):
            event = orjson.loads(found[1]) if found else None
            return _FAILURES.get(str(event.get("error_type"))) if isinstance(event, dict) else None
        return None

    async def parts(self) -> AsyncGenerator[bytes]:
        """Yields the body as it comes. Raises SourceFailed where it breaks off."""
        if self.first:
            yield self.first
        content = self.response.content
        while not self.is_whole:
            try:
                async with asyncio.timeout(self.pause_timeout):
                    part = await content.readany()
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                self.attempt.outcome = Outcome.BROKEN
                said = f"paused for {self.pause_timeout:g} s" if isinstance(error, TimeoutError) else "broke off"
                raise SourceFailed(f"the answer of {self.source} {said}") from error
            if part:
                yield part
            else:
                self.is_whole = True

    async def finish(self) -> None:
        """Takes the rest of a short answer. Raises ClientError and OSError where it breaks off."""
        while len(self.first) < WHOLE and (part := await self.response.content.readany()):
            self.first += part
        self.is_whole = True

    def close(self) -> None:
        """Ends the connection, unless the answer has come to its end, and notes what became of it."""
        if not self.is_whole:
            self.response.close()
        elif self.attempt.outcome is Outcome.LEFT:
            self.attempt.outcome = Outcome.ANSWERED if self.status < 400 else Outcome.REFUSED
