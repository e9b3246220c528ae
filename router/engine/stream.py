"""The stream of one answer: the engine puts events in, a handler reads them."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from penstock.router.engine.request import Request
from penstock.router.errors import RouterError
from penstock.router.scheduling.plan import FinishReason, TopLogprobs


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token. `text` is empty while a character is incomplete; the token that completes it has it all.

    `top_logprobs` lists the likeliest tokens at its position, if they were asked for.
    """

    id: int
    text: str
    logprob: float
    is_special: bool
    top_logprobs: TopLogprobs = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """Tells how a request ended. `text` is the whole answer without special tokens."""

    finish_reason: FinishReason
    text: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Event:
    """Carries a token, and with the last token of a request the ending."""

    token: Token
    ending: Ending | None = None


@dataclass(slots=True)
class PromptLogprobs:
    """The logprobs of the prompt's tokens from the second on, by the logits, with the top logprobs if asked for."""

    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[TopLogprobs] = field(default_factory=list)


@dataclass(slots=True)
class Guesses:
    """Counts tokens that were guessed and verified while the answer was made, and those of them that were right."""

    drafted: int = 0
    accepted: int = 0


Queue = asyncio.Queue[tuple["Stream", Event | RouterError]]


class Stream:
    """Iterates over an answer's events; ends after the event with the ending, or raises the error that ended it.

    A stream belongs to the request, not to the engine that happens to run it. Several streams may share one `queue`;
    their reader then hands each item to its stream's `take`. Leaving the `async with` before the end cancels the
    request.
    Times are of `time.monotonic`; `started_at` is when its first step was sent. `hit_tokens` of the prompt were found
    in the prefix cache. `guesses` is None where nothing is guessed. `prompt_logprobs` are whole before the first event
    comes, if they were asked for.
    """

    def __init__(self, request: Request, cancel: Callable[[], None], queue: Queue | None = None) -> None:
        self.request = request
        self.submitted_at = time.monotonic()
        self.started_at: float | None = None
        self.first_token_at: float | None = None
        self.finished_at: float | None = None
        self.ending: Ending | None = None
        self.hit_tokens = 0
        self.guesses: Guesses | None = None
        self.prompt_logprobs = PromptLogprobs()
        self._cancel = cancel
        self._queue: Queue = asyncio.Queue() if queue is None else queue
        self._is_over = False

    def put(self, event: Event) -> None:
        """Puts a token's event in. The engine calls it for each token, in order."""
        now = time.monotonic()
        if self.first_token_at is None:
            self.first_token_at = now
        if event.ending is not None:
            self.finished_at = now
            self.ending = event.ending
        self._queue.put_nowait((self, event))

    def fail(self, error: RouterError) -> None:
        """Puts an error in. The engine calls it when the request can't go on."""
        self.finished_at = time.monotonic()
        self._queue.put_nowait((self, error))

    def take(self, item: Event | RouterError) -> Event:
        """Takes an item of this stream that was read from the queue: returns the event or raises the error."""
        self._is_over = isinstance(item, RouterError) or item.ending is not None
        if isinstance(item, RouterError):
            raise item
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Returns the next event. Only a stream with a queue of its own can be iterated over."""
        if self._is_over:
            raise StopAsyncIteration
        stream, item = await self._queue.get()
        assert stream is self
        return self.take(item)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_over:
            self._cancel()
