"""The scheduler's reports of sequences once a step's result, or the loss of a group, is known."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.contract.row_result import TopLogprobs
from penstock.router.scheduling.finish_reason import FinishReason


class Sampled(NamedTuple):
    """A confirmed token of a sequence, with the reason if the sequence ended with this token."""

    sequence_id: int
    token_id: int
    logprob: float
    finish_reason: FinishReason | None = None
    top_logprobs: TopLogprobs = ()


class Candidates(NamedTuple):
    """The likeliest next tokens of a beam, of which its search chooses; `logprob` is that of the likeliest. There is an
    error as the reason to end if no memory could hold the beam with one more token."""

    sequence_id: int
    logprob: float
    top_logprobs: TopLogprobs
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """Tells how many guesses of a sequence a step verified, in its row and in forks, and how many were right."""

    sequence_id: int
    num_drafts: int
    num_accepted: int


@dataclass(frozen=True, slots=True)
class PromptLogprobsPart:
    """The logprobs of a part of a sequence's prompt, from position `start` on. They precede its first sampled token."""

    sequence_id: int
    start: int
    logprobs: tuple[float, ...]
    top_logprobs: tuple[TopLogprobs, ...] = ()
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Other:
    """A result of another kind, made in a row that ends before `position`. One that is made again has the same."""

    sequence_id: int
    position: int
    kind: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Pooled:
    """The vector or scores of a sequence, with which it ends, or vectors of `num_tokens` of its tokens from position
    `start` on: `value` is as in the contract. Some vectors of tokens come twice, if they are computed again."""

    sequence_id: int
    start: int
    num_tokens: int
    value: bytes
    finish_reason: FinishReason | None = FinishReason.POOLED


Confirmed = Sampled | Candidates | PromptLogprobsPart | Verified | Other | Pooled
"""A report of a sequence, made of a step's result."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Tells how many requests will go on after the loss of their group, which are computed again, and the ids of the
    sequences that are given up. Sequences of one place in the order are beams of one request."""

    num_replayed: int
    given_up: tuple[int, ...]
