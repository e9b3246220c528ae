"""The plans that go to the shards and the results that come back: numbers only, so that they can be logged.

What there is of each for every token is a tuple: a dataclass that is frozen takes four times as long to make.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class FinishReason(Enum):
    """Tells why a sequence ended; the values of the first three are TGI's words."""

    LENGTH = "length"
    EOS_TOKEN = "eos_token"
    STOP_SEQUENCE = "stop_sequence"
    CANCELLED = "cancelled"
    ERROR = "error"
    MOVED = "moved"
    """Another group goes on with it."""


class Output(Enum):
    """Tells what a row yields."""

    NONE = 0
    SAMPLE = 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """Says how tokens are chosen, in the order in which it is applied. The defaults are off: greedy, no penalty.

    `share_penalty` is what TGI calls frequency penalty: it weighs a token's share of all tokens so far. The frequency
    penalty is OpenAI's, for each time that a token is in the output. `banned_ids` can't be sampled before output
    position `min_tokens`. `branch` tells several answers to one prompt apart, which share a seed.
    """

    do_sample: bool = False
    seed: int = 0
    branch: int = 0
    watermark: bool = False
    repetition_penalty: float = 1.0
    share_penalty: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()
    banned_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    typical_p: float = 1.0
    min_p: float = 0.0
    raw_logprobs: bool = False
    """Logprobs of the logits, not of the scores that tokens are sampled from."""
    top_n: int = 0
    """Top logprobs to report with each sampled token, and with each of the prompt whose logprob is wanted."""

    @property
    def reads_history(self) -> bool:
        """Tells whether a choice depends on the tokens before it, other than through the model."""
        return self.watermark or self.repetition_penalty != 1.0 or any(
            (self.share_penalty, self.frequency_penalty, self.presence_penalty))


@dataclass(frozen=True, slots=True)
class InitialState:
    """Tells a shard what it must know before a slot's first row. `history_ids` is empty unless the sampling reads it.

    `trace` names the span that steps with this sequence are linked to; empty if its request is not traced. `adapter` is
    the number of a loaded adapter, or 0.
    """

    sampling: Sampling
    prompt_length: int
    history_ids: tuple[int, ...] = ()
    trace: bytes = b""
    adapter: int = 0


class Row(NamedTuple):
    """Orders one sequence in one step. The input is `token_ids`, behind the token last sampled in the slot if
    `from_last_sample` is set.

    `start` is the position of the first input token; `new_blocks` are appended to the slot's block table. With
    `late_mask` the step waits for a mask before it samples. `prompt_logprob_ids` are the tokens that follow the first
    inputs, one for each: their logprobs are wanted. The last `num_drafts` of `token_ids` are guesses: a token is
    sampled before the first of them and after each, as if those before it were right. So it is with `num_proposals`
    more tokens, which the shards' draft model puts behind the inputs; a row has guesses of one kind.
    """

    slot: int
    start: int
    token_ids: tuple[int, ...] = ()
    from_last_sample: bool = False
    new_blocks: tuple[int, ...] = ()
    output: Output = Output.SAMPLE
    initial_state: InitialState | None = None
    late_mask: bool = False
    prompt_logprob_ids: tuple[int, ...] = ()
    num_drafts: int = 0
    num_proposals: int = 0
    is_decode: bool = False
    """Whether it only continues from a sampled token. The shards are not told."""

    @property
    def num_inputs(self) -> int:
        """How many input tokens the row has."""
        return len(self.token_ids) + self.from_last_sample + self.num_proposals

    @property
    def num_guesses(self) -> int:
        """How many of the inputs are guesses."""
        return self.num_drafts + self.num_proposals

    @property
    def drafts(self) -> tuple[int, ...]:
        """The guesses that the row brings."""
        return self.token_ids[len(self.token_ids) - self.num_drafts:]

    @property
    def is_sampled(self) -> bool:
        """Tells whether the row yields a token."""
        return self.output is Output.SAMPLE

    @property
    def is_answered(self) -> bool:
        """Tells whether the step's result has a row for this one."""
        return self.is_sampled or bool(self.prompt_logprob_ids)


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Orders that what a block holds be copied into another one, before a step's rows run."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Admission:
    """Names a sequence that begins to run, and how many of its tokens it found in the prefix cache."""

    sequence_id: int
    hit_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Orders one step. `step_id` is consecutive; the slots in `cleared_slots` were released since the last plan. The
    `block_copies` are made before the rows run.

    `admitted` and `preempted` are causes, not orders: the sequences that begin to run with this step, and the ids of
    those that had to let go of their blocks since the last plan. `masked` names the rows that wait for a mask, each by
    its slot, its sequence's id and its drafts. `chunks` are the prefills of sequences whose requests are traced: a
    sequence's id, the first position, the number of tokens.
    """

    step_id: int
    rows: tuple[Row, ...]
    cleared_slots: tuple[int, ...] = ()
    block_copies: tuple[BlockCopy, ...] = ()
    admitted: tuple[Admission, ...] = ()
    preempted: tuple[int, ...] = ()
    masked: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    chunks: tuple[tuple[int, int, int], ...] = ()

    @property
    def num_tokens(self) -> int:
        """How many input tokens all rows have."""
        return sum(row.num_inputs for row in self.rows)

    @property
    def num_rounds(self) -> int:
        """How often the draft model runs for proposals, one after the other."""
        return max((row.num_proposals for row in self.rows), default=0)

    @property
    def num_decode_rows(self) -> int:
        """How many rows only continue from a sampled token: of sequences, and of their forks."""
        return sum(row.is_decode for row in self.rows)

    @property
    def num_prompt_tokens(self) -> int:
        """How many input tokens are of prompts and of replays."""
        return sum(row.num_inputs for row in self.rows if not row.is_decode)


TopLogprobs = tuple[tuple[int, float], ...]
"""The likeliest tokens at one position with their logprobs, the likeliest first."""


class RowResult(NamedTuple):
    """Has the tokens that a row yielded, with the logprob of each, and the logprobs of its `prompt_logprob_ids`.

    `top_logprobs` has an entry for each of `token_ids`, `prompt_top_logprobs` for each of `prompt_logprobs`; both are
    empty if none was asked for.
    """

    slot: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    top_logprobs: tuple[TopLogprobs, ...] = ()
    prompt_logprobs: tuple[float, ...] = ()
    prompt_top_logprobs: tuple[TopLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """Has what a step yielded: its rows with tokens or prompt logprobs, in any order. Times are in seconds."""

    step_id: int
    rows: tuple[RowResult, ...]
    forward_time: float = 0.0
    sample_time: float = 0.0
    draft_time: float = 0.0
    """Of the draft model, before the model."""

    def by_slot(self) -> dict[int, RowResult]:
        """Returns the rows by their slots, of which each has one."""
        rows = {row.slot: row for row in self.rows}
        assert len(rows) == len(self.rows), f"step {self.step_id} has two results for a slot"
        return rows


class Sampled(NamedTuple):
    """A confirmed token of a sequence, with the reason if the sequence ended with this token."""

    sequence_id: int
    token_id: int
    logprob: float
    finish_reason: FinishReason | None = None
    top_logprobs: TopLogprobs = ()


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


Confirmed = Sampled | PromptLogprobsPart | Verified
"""What a step's result tells of a sequence."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Tells how many sequences will be computed again after the loss of their group, and the ids of those given up."""

    num_replayed: int
    given_up: tuple[int, ...]
