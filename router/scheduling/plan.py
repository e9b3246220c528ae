"""What goes to the shards and what comes back, as the scheduler sees it: numbers only, so that it can be logged."""

from dataclasses import dataclass
from enum import Enum


class FinishReason(Enum):
    """Why a sequence ended; the values of the first three are TGI's words."""

    LENGTH = "length"
    EOS_TOKEN = "eos_token"
    STOP_SEQUENCE = "stop_sequence"
    CANCELLED = "cancelled"
    ERROR = "error"


class Output(Enum):
    """What a row yields."""

    NONE = 0
    SAMPLE = 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. The defaults are off: greedy, no penalty."""

    do_sample: bool = False
    seed: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0

    @property
    def reads_history(self) -> bool:
        """Whether a choice depends on the tokens before it, other than through the model."""
        return self.repetition_penalty != 1.0 or self.frequency_penalty != 0.0


@dataclass(frozen=True, slots=True)
class First:
    """What a shard must know before a slot's first row. `history_ids` is empty unless the sampling reads it."""

    sampling: Sampling
    prompt_length: int
    history_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence in one step. Its input: the token last sampled in the slot, if so said, then `token_ids`.

    `start` is the position of the first input token; `new_blocks` are appended to the slot's block table.
    """

    slot: int
    start: int
    token_ids: tuple[int, ...] = ()
    from_last_sample: bool = False
    new_blocks: tuple[int, ...] = ()
    output: Output = Output.SAMPLE
    first: First | None = None

    @property
    def count(self) -> int:
        """Input tokens."""
        return len(self.token_ids) + self.from_last_sample


@dataclass(frozen=True, slots=True)
class Admission:
    """A sequence that begins to run, and how many of its tokens it found computed."""

    sequence_id: int
    hit_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One step. `step_id` is consecutive; the slots in `cleared_slots` were released since the last plan.

    `admitted` and `preempted` are causes, not orders: the sequences that begin to run with this step, and the ids of
    those that had to let go of their blocks since the last plan.
    """

    step_id: int
    rows: tuple[Row, ...]
    cleared_slots: tuple[int, ...] = ()
    admitted: tuple[Admission, ...] = ()
    preempted: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Input tokens of all rows."""
        return sum(row.count for row in self.rows)

    @property
    def num_decode_rows(self) -> int:
        """Rows that only continue from a sampled token."""
        return sum(row.from_last_sample for row in self.rows)


@dataclass(frozen=True, slots=True)
class RowResult:
    """The tokens that a row yielded, with the logprob of each."""

    slot: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step yielded: the sampled rows, in the plan's order. Times in seconds."""

    step_id: int
    rows: tuple[RowResult, ...]
    forward_time: float = 0.0
    sample_time: float = 0.0


@dataclass(frozen=True, slots=True)
class Sampled:
    """A confirmed token of a sequence, and why the sequence ended if it did with this token."""

    sequence_id: int
    token_id: int
    logprob: float
    finish_reason: FinishReason | None = None
