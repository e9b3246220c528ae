"""The receiver of a request whose stream is in a front: it passes on what the engine yields."""

import asyncio
import time
from collections.abc import Callable, Sequence

from penstock.router.engine.request import Request
from penstock.router.engine.stop_text import StopText
from penstock.router.engine.trace import Note
from penstock.router.errors import RouterError
from penstock.router.front.messages import Began, FoundAnswers
from penstock.router.scheduling.beam_search import FoundAnswer
from penstock.router.scheduling.confirmed import Other, Pooled, PromptLogprobsPart, Sampled, Verified
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.usage import Usage
from penstock.router.text.tokenizer import Tokenizer


class RemoteStream:
    """Tells a front by `send` what becomes of the request that it calls `id`; `forget` is called when that has
    ended."""

    def __init__(
        self, id: int, request: Request, num_tokens: int, tokenizer: Tokenizer, send: Callable[[object], None],
        forget: Callable[[int], object],
    ) -> None:
        self.request = request
        self._tokenizer = tokenizer
        self.started_at: float | None = None
        self.num_tokens = num_tokens
        self.usage = Usage()
        self.billing: asyncio.Future[None] | None = None
        self.cancel: Callable[[], None] = lambda: None
        self._id = id
        self._send = send
        self._forget = forget

    def bind(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel

    def begin(self, now: float, hit_tokens: int) -> None:
        if self.started_at is None:
            self.started_at = now
            self._send((self._id, Began(now, hit_tokens)))

    def push(self, sampled: Sampled) -> FinishReason | None:
        self.num_tokens += 1
        reason = sampled.finish_reason
        if reason is None and not sampled.top_logprobs:
            self._send((self._id, sampled.token_id, sampled.logprob))
            return None
        if reason is not None:
            self.bill()
        self._send((self._id, sampled))
        if reason is not None:
            self._forget(self._id)
        return reason

    def bill(self) -> None:
        """Tells what the request has used: before its last token, or answer, or when it is cancelled."""
        self._send((self._id, self.usage))

    def take_answers(self, answers: Sequence[FoundAnswer]) -> None:
        self.bill()
        self._send((self._id, FoundAnswers((*answers,))))
        self._forget(self._id)

    def take_pooled(self, pooled: Pooled) -> None:
        if pooled.finish_reason is not None:
            self.bill()
        self._send((self._id, pooled))
        if pooled.finish_reason is not None:
            self._forget(self._id)

    def stop_text(self) -> StopText:
        return StopText(self._tokenizer, self.request)

    def verified(self, verified: Verified) -> None:
        self._send((self._id, verified))

    def take_prompt_logprobs(self, part: PromptLogprobsPart) -> None:
        self._send((self._id, part))

    def take_other(self, other: Other) -> None:
        self._send((self._id, other))

    def note(self, name: str, **facts: int) -> None:
        if self.request.trace is not None:
            self._send((self._id, Note(name, time.monotonic(), facts)))

    def fail(self, error: RouterError) -> None:
        self.bill()
        self._send((self._id, error))
        self._forget(self._id)
