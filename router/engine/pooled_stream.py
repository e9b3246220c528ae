"""The receiver of what the model makes of one text: a vector, scores, or a vector of each token."""

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence
from math import isfinite

from penstock.contract.pooling import Task
from penstock.router.engine.request import Request
from penstock.router.engine.stop_text import StopText
from penstock.router.errors import Dropped, RouterError
from penstock.router.scheduling.beam_search import FoundAnswer
from penstock.router.scheduling.confirmed import Other, Pooled, PromptLogprobsPart, Sampled, Verified
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.usage import Usage


class PooledStream:
    """Collects the numbers that are computed for a request, until it `has_ended`; `error` says why some could not be.
    Then it is put into the queue `ended`. Whoever wants it no more leaves it.

    Times are of `time.monotonic`, as in `Stream`. `values` are float32 numbers; a sparse vector has the `indices` of
    its values.
    """

    ending = first_token_at = guesses = None
    """There is none: no token comes of it."""

    def __init__(self, request: Request, ended: "asyncio.Queue[PooledStream] | None" = None) -> None:
        assert request.pooling is not None
        self.request = request
        self.task = request.pooling.task
        self.num_tokens = self.hit_tokens = 0
        self.submitted_at = time.monotonic()
        self.started_at: float | None = None
        self.finished_at: float | None = None
        self.finish_reason: str | None = None
        self.error: RouterError | None = None
        self.usage = Usage()
        self.billing: asyncio.Future[None] | None = None
        self.values, self.indices = array("f"), array("I")
        self._cancel: Callable[[], None] = lambda: None
        self._ended: asyncio.Queue[PooledStream] = asyncio.Queue() if ended is None else ended

    @property
    def has_ended(self) -> bool:
        return self.finished_at is not None

    async def wait(self) -> None:
        """Waits until all has come, of a stream with a queue of its own. Raises the error that has ended the
        request."""
        await self._ended.get()
        if self.error is not None:
            raise self.error

    def leave(self) -> None:
        """Cancels the request, unless it has ended."""
        if not self.has_ended:
            self.finished_at, self.error = time.monotonic(), Dropped()
            self._cancel()

    def bind(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def begin(self, now: float, hit_tokens: int) -> None:
        if self.started_at is None:
            self.started_at, self.hit_tokens = now, hit_tokens

    def take_pooled(self, pooled: Pooled) -> None:
        value = pooled.value
        if self.task is Task.EMBED_SPARSE:
            half = len(value) // 2
            self.indices, value = array("I", value[:half]), value[half:]
        numbers = array("f", value)
        start = 0
        if self.task is Task.EMBED_ALL:  # some of them may be there, which another chunk of the text has yielded
            start = pooled.start * (len(numbers) // pooled.num_tokens)
        self.values[start:start + len(numbers)] = numbers
        if pooled.finish_reason is not None:
            self.finish_reason = pooled.finish_reason.value
            self._end()

    def note(self, name: str, **facts: int) -> None:
        if self.request.trace is not None:
            self.request.trace.note(name, **facts)

    def fail(self, error: RouterError) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        self.finished_at = time.monotonic()
        self._ended.put_nowait(self)

    def take_other(self, other: Other) -> None:
        """Nobody asks for others."""

    def push(self, sampled: Sampled) -> FinishReason | None:
        raise _wrong("a token")

    def take_answers(self, answers: Sequence[FoundAnswer]) -> None:
        raise _wrong("answers")

    def stop_text(self) -> StopText:
        raise _wrong("stop strings")

    def verified(self, verified: Verified) -> None:
        raise _wrong("guesses")

    def take_prompt_logprobs(self, part: PromptLogprobsPart) -> None:
        raise _wrong("logprobs")


def _wrong(what: str) -> TypeError:
    return TypeError(f"{what} came for a text that is to be made a vector or scores of")


def is_finite(value: bytes, task: Task) -> bool:
    """Tells whether all numbers of a result are finite: their sum is."""
    return isfinite(sum(array("f", value[len(value) // 2:] if task is Task.EMBED_SPARSE else value)))
