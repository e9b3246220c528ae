"""The stream of one answer: the engine puts events in, a handler reads them."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from types import TracebackType
from typing import NamedTuple, Self

from penstock.contract.row_result import TopLogprobs
from penstock.router.engine.request import Request
from penstock.router.engine.stop_text import StopText
from penstock.router.engine.text_path import TextPath
from penstock.router.errors import RouterError
from penstock.router.scheduling.beam_search import FoundAnswer
from penstock.router.scheduling.confirmed import Other, Pooled, PromptLogprobsPart, Sampled, Verified
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.usage import Usage


class Token(NamedTuple):
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
    """Tells how a request ended. `text` is the whole answer without special tokens, `score` that of a beam search, and
    `stop` the stop string that has ended it, if one did."""

    finish_reason: FinishReason
    text: str
    num_tokens: int
    score: float | None = None
    stop: str | None = None


class Event(NamedTuple):
    """Carries a token, and with the last token of a request the ending."""

    token: Token
    ending: Ending | None = None


@dataclass(slots=True)
class PromptLogprobs:
    """The logprobs of the prompt's tokens from the second on, by the logits, and their ranks, 1 for the likeliest,
    with the top logprobs if asked for."""

    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[TopLogprobs] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Guesses:
    """Counts tokens that were guessed and verified while the answer was made, and those of them that were right."""

    drafted: int = 0
    accepted: int = 0


Queue = asyncio.Queue[tuple["Stream", Event | RouterError]]


class Stream:
    """Iterates over an answer's events; ends after the event with the ending, or raises the error that ended it.

    It is the receiver of what the engine yields, and turns tokens into text by the request's `text` path. A stream
    belongs to the request, not to the engine that happens to run it. Several streams may share one `queue`; their
    reader then hands each item to its stream's `take`. Leaving the `async with` before the end cancels the request.

    Times are of `time.monotonic`; `started_at` is when its first step was sent. `hit_tokens` of the prompt were found
    in the prefix cache. `guesses` is None unless tokens of the answer are guessed (`is_guessed`). `prompt_logprobs` are
    whole before the first event comes, if they were asked for. The answers of a beam search come at once: the best to
    the stream that is submitted, the others to its `siblings`.
    """

    def __init__(
        self, request: Request, text: TextPath, queue: Queue | None = None, *, is_guessed: bool = False,
        siblings: Sequence["Stream"] = (),
    ) -> None:
        self.request = request
        self.siblings = siblings
        self.num_tokens = 0
        """Generated tokens, including the output that the request was submitted with."""
        self.token_ids: list[int] = []
        """Those tokens, as far as they came through here."""
        self.submitted_at = time.monotonic()
        self.started_at: float | None = None
        self.first_token_at: float | None = None
        self.finished_at: float | None = None
        self.ending: Ending | None = None
        self.finish_reason: str | None = None
        """Why the answer has ended, by the word that its client is told."""
        self.hit_tokens = 0
        self.guesses = Guesses() if is_guessed else None
        self.usage = Usage()
        self.billing: asyncio.Future[None] | None = None
        self.prompt_logprobs = PromptLogprobs()
        self.others: dict[tuple[str, int], bytes] = {}
        """The results of other kinds, by kind and the position behind the tokens that they were made of."""
        self._text = text
        self._cancel: Callable[[], None] = lambda: None
        self._queue: Queue = asyncio.Queue() if queue is None else queue
        self._is_over = False
        self._score: float | None = None

    def bind(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def begin(self, now: float, hit_tokens: int) -> None:
        for stream in (self, *self.siblings):
            if stream.started_at is None:
                stream.started_at = now
                stream.hit_tokens = hit_tokens

    def push(self, sampled: Sampled) -> FinishReason | None:
        """Turns a token into the event that the client sees; a stop string that it completes ends the answer."""
        piece = self._text.push(sampled.token_id)
        self.num_tokens += 1
        self.token_ids.append(sampled.token_id)
        now = time.monotonic()
        if self.first_token_at is None:
            self.first_token_at = now
        reason = sampled.finish_reason if piece.stop is None else FinishReason.STOP_SEQUENCE
        self._end(reason, now, piece.stop)
        token = Token(sampled.token_id, piece.text, sampled.logprob, piece.is_special, sampled.top_logprobs)
        self._queue.put_nowait((self, Event(token, self.ending)))
        return reason

    def take_answers(self, answers: Sequence[FoundAnswer]) -> None:
        """Hands out the answers of a beam search. A stream for which there is none ends without an event."""
        now = time.monotonic()
        for stream, answer in zip_longest((self, *self.siblings), answers):
            if answer is None:
                stream.finished_at, stream._is_over = now, True
            else:
                stream._take_answer(answer)

    def _take_answer(self, answer: FoundAnswer) -> None:
        self._score = answer.score
        for token_id, logprob in zip(answer.token_ids[:-1], answer.logprobs, strict=False):
            self.push(Sampled(0, token_id, logprob))
        self.push(Sampled(0, answer.token_ids[-1], answer.logprobs[-1], answer.finish_reason))

    @property
    def text(self) -> str:
        """The answer's text so far, without special tokens."""
        return self._text.text

    def stop_text(self) -> StopText:
        return self._text.stops.fork()

    def feed(self, token_id: int, reason: FinishReason | None) -> FinishReason | None:
        """Takes a token that the client has, which the request is submitted behind; its event has no logprob. Returns
        why the answer ends with it: for the `reason` that is given, or for a stop string. Such a request is none for
        the engine."""
        piece = self._text.push(token_id)
        self.num_tokens += 1
        self.token_ids.append(token_id)
        reason = reason if piece.stop is None else FinishReason.STOP_SEQUENCE
        if reason is not None:
            self.started_at = self.submitted_at
        self._end(reason, time.monotonic(), piece.stop)
        self._queue.put_nowait((self, Event(Token(token_id, piece.text, 0.0, piece.is_special), self.ending)))
        return reason

    def _end(self, reason: FinishReason | None, now: float, stop: str | None) -> None:
        if reason is not None:
            self.finished_at = now
            self.ending = Ending(reason, self._text.text, self.num_tokens, self._score, stop)
            self.finish_reason = reason.value

    def verified(self, verified: Verified) -> None:
        if self.guesses is not None:
            self.guesses.drafted += verified.num_drafts
            self.guesses.accepted += verified.num_accepted

    def take_prompt_logprobs(self, part: PromptLogprobsPart) -> None:
        known, place = self.prompt_logprobs, slice(part.start - 1, part.start - 1 + len(part.logprobs))
        known.logprobs[place] = part.logprobs
        known.ranks[place] = part.ranks
        if part.top_logprobs:
            known.top_logprobs[place] = part.top_logprobs

    def take_pooled(self, pooled: Pooled) -> None:
        raise TypeError("a vector or scores came for an answer")

    def take_other(self, other: Other) -> None:
        self.others[other.kind, other.position] = other.value

    def note(self, name: str, **facts: int) -> None:
        if self.request.trace is not None:
            self.request.trace.note(name, **facts)

    def fail(self, error: RouterError) -> None:
        """Puts an error in, for the request can't go on."""
        self.finished_at = time.monotonic()
        self._queue.put_nowait((self, error))

    def take(self, item: Event | RouterError) -> Event:
        """Takes an item of this stream that was read from the queue: returns the event or raises the error."""
        self._is_over = isinstance(item, RouterError) or item.ending is not None
        if isinstance(item, RouterError):
            raise item
        return item

    @property
    def is_over(self) -> bool:
        """Whether its last event, or its error, was taken, or there is none for it."""
        return self._is_over

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
        self._queue = asyncio.Queue()  # the events that nobody has read refer to the stream, and it to them
