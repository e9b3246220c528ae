"""Who takes what the engine yields for a request: the stream that a handler reads, or the wire to one."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.router.engine.request import Request
from penstock.router.engine.stop_text import StopText
from penstock.router.errors import RouterError
from penstock.router.scheduling.beam_search import FoundAnswer
from penstock.router.scheduling.confirmed import Other, Pooled, PromptLogprobsPart, Sampled, Verified
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.usage import Usage


class Receiver(Protocol):
    """Takes the tokens of one answer in order, the last of which, or an error, ends it. In place of tokens it may take
    what the model makes of a text."""

    request: Request
    started_at: float | None
    """When the request first began to run, of `time.monotonic`; None before."""
    num_tokens: int
    """How many tokens it has taken, with those that the request was submitted with."""
    usage: Usage
    """The resources that the request has used. The engine's process goes on to count in it."""
    billing: asyncio.Future[None] | None
    """Done once `usage` is known, where that is told by another process; None where it is always known."""

    def bind(self, cancel: Callable[[], None]) -> None:
        """Sets the function that ends the request when nobody wants its answer any more. The engine calls it when it
        takes the request."""

    def begin(self, now: float, hit_tokens: int) -> None:
        """Notes that the request begins to run; again after a preemption or a loss, which changes nothing."""

    def push(self, sampled: Sampled) -> FinishReason | None:
        """Takes the next token; returns why the answer ends with it, or None. An error that it raises ends the request.
        """

    def take_answers(self, answers: Sequence[FoundAnswer]) -> None:
        """Takes all answers of a beam search, at least one, which end the request."""

    def take_pooled(self, pooled: Pooled) -> None:
        """Takes a vector or scores, or the vectors of some tokens. Some of the latter come twice, of a text that is
        computed again. An error that it raises ends the request."""

    def stop_text(self) -> StopText:
        """Returns the text of an answer at its beginning, in which stop strings are looked for."""
        ...

    def verified(self, verified: Verified) -> None:
        """Counts the guesses that a step has verified."""

    def take_prompt_logprobs(self, part: PromptLogprobsPart) -> None:
        """Takes logprobs of prompt tokens. A prompt that is computed again yields some twice."""

    def take_other(self, other: Other) -> None:
        """Takes a result that is neither a token nor a logprob; it comes before the tokens of its row. Some come twice,
        from a row that is computed again."""

    def note(self, name: str, **facts: int) -> None:
        """Notes an event in the request's trace, if the request is traced."""

    def fail(self, error: RouterError) -> None:
        """Takes the error that ends the request."""
