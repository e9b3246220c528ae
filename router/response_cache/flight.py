"""One computation that answers several equal requests: all that the engine yields goes to the receivers of each."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from penstock.router.engine.receiver import Receiver
from penstock.router.engine.stop_text import StopText
from penstock.router.errors import GenerationError, RouterError
from penstock.router.response_cache.recording import Recording
from penstock.router.scheduling.beam_search import FoundAnswer
from penstock.router.scheduling.confirmed import Other, Pooled, PromptLogprobsPart, Sampled, Verified
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.usage import Usage

_T = TypeVar("_T")

log = logging.getLogger(__name__)

_OTHER_BITS = ("replay", "moved")
"""The notes of events behind which an answer may go on where other bits are computed."""


class Flight:
    """Is the receiver of a request in the engine, and tells all who have joined, also of the tokens before that; the
    `first` of them is told what it costs, and if that one leaves, the next. It ends when the answer does, or when the
    last of them has left; then it calls `landed`."""

    def __init__(self, first: Receiver, landed: Callable[["Flight"], None]) -> None:
        self.request = first.request
        self._first = first
        self.started_at: float | None = None
        self.num_tokens = 0
        self.recording = Recording()
        self.is_whole = False
        """Whether the answer has ended, and not by an error."""
        self.is_undisturbed = True
        """Whether all of it was computed without a loss of the group on the way."""
        self._landed = landed
        self._receivers: list[Receiver] = []
        self._cancel: Callable[[], None] = lambda: None

    @property
    def usage(self) -> Usage:
        return self._first.usage

    @usage.setter
    def usage(self, usage: Usage) -> None:
        self._first.usage = usage

    @property
    def billing(self) -> asyncio.Future[None] | None:
        return self._first.billing

    @billing.setter
    def billing(self, billing: asyncio.Future[None] | None) -> None:
        self._first.billing = billing

    def join(self, receiver: Receiver) -> None:
        """Tells a receiver all that has come so far, and that comes from now on."""
        receiver.bind(lambda: self._leave(receiver))
        if self.started_at is not None:
            self.recording.tell(receiver, time.monotonic())
        if not self.is_whole:
            self._receivers.append(receiver)

    def _leave(self, receiver: Receiver) -> None:
        if receiver in self._receivers:
            self._remove(receiver)
            if not self._receivers:
                self._landed(self)
                self._cancel()

    def _remove(self, receiver: Receiver) -> None:
        """Tells a receiver nothing any more. If it was the first the next one has the cost, and it keeps what there was
        of that."""
        self._receivers.remove(receiver)
        if receiver is self._first and self._receivers:
            self._first = self._receivers[0]
            self._first.usage, self._first.billing = receiver.usage, receiver.billing
            receiver.usage = replace(receiver.usage, waits={**receiver.usage.waits})
            receiver.billing = None

    def bind(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def begin(self, now: float, hit_tokens: int) -> None:
        if self.started_at is None:
            self.started_at, self.recording.hit_tokens = now, hit_tokens
        for receiver in self._receivers:
            receiver.begin(now, hit_tokens)

    def push(self, sampled: Sampled) -> FinishReason | None:
        self.num_tokens += 1
        self.recording.tokens.append(sampled)
        reasons = self._tell(lambda receiver: receiver.push(sampled))
        if (reason := next(iter(reasons), None)) is not None:
            self._end()
        return reason

    def take_answers(self, answers: Sequence[FoundAnswer]) -> None:
        self.recording.found.extend(answers)
        self._tell(lambda receiver: receiver.take_answers(answers))
        self._end()

    def take_pooled(self, pooled: Pooled) -> None:
        self.recording.pooled.append(pooled)
        self._tell(lambda receiver: receiver.take_pooled(pooled))
        if pooled.finish_reason is not None:
            self._end()

    def stop_text(self) -> StopText:
        return self._receivers[0].stop_text()

    def verified(self, verified: Verified) -> None:
        self.recording.drafted += verified.num_drafts
        self.recording.accepted += verified.num_accepted
        self._tell(lambda receiver: receiver.verified(verified))

    def take_prompt_logprobs(self, part: PromptLogprobsPart) -> None:
        self.recording.prompt.append(part)
        self._tell(lambda receiver: receiver.take_prompt_logprobs(part))

    def take_other(self, other: Other) -> None:
        self.recording.others.append(other)
        self._tell(lambda receiver: receiver.take_other(other))

    def note(self, name: str, **facts: int) -> None:
        if name in _OTHER_BITS:
            self.is_undisturbed = False
        for receiver in self._receivers:
            receiver.note(name, **facts)

    def fail(self, error: RouterError) -> None:
        receivers, self._receivers = self._receivers, []
        self._landed(self)
        for receiver in receivers:
            receiver.fail(error)

    def _end(self) -> None:
        if self._receivers:
            self.is_whole, self._receivers = True, []
            self._landed(self)

    def _tell(self, tell: Callable[[Receiver], _T]) -> list[_T]:
        """Tells all receivers something, and returns their replies. One that can't take it fails alone; if there is no
        other, its exception ends the request."""
        said = []
        for receiver in [*self._receivers]:
            try:
                said.append(tell(receiver))
            except Exception as error:
                if self._receivers == [receiver]:
                    raise
                self._remove(receiver)
                log.error("one of several equal requests failed", exc_info=error)
                receiver.fail(GenerationError(f"{type(error).__name__} in the text path"))
        return said
