"""Defines what the router orders and what a shard answers, as plain values.

They mirror protos/shard.proto one to one; shard/serving/wire.py converts. Ids and blocks are numpy arrays, for they go
on into tensors; nothing here is ever changed after it was made.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.kernels.sample.parameters import RowParameters

Ids = npt.NDArray[np.int64]
Blocks = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


NO_IDS: Ids = np.empty(0, np.int64)
NO_BLOCKS: Blocks = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling(RowParameters):
    """Tells how a sequence's tokens are chosen: by the kernel's parameters, and by what the shard does around the
    kernel."""

    watermark: bool = False
    bias_ids: Ids = field(default_factory=lambda: NO_IDS)
    bias_values: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    banned_ids: Ids = field(default_factory=lambda: NO_IDS)
    """These tokens are not sampled before output position `min_tokens`."""
    min_tokens: int = 0
    raw_logprobs: bool = False
    """Whether logprobs are of the logits, not of the scores that tokens are sampled from."""

    @property
    def reads_history(self) -> bool:
        """Tells whether a choice depends on the tokens before it, other than through the model."""
        return self.watermark or self.repetition_penalty != 1.0 or any(
            (self.share_penalty, self.frequency_penalty, self.presence_penalty))


@dataclass(frozen=True, slots=True)
class InitialState:
    """Holds the state that a slot begins a new sequence with.

    `history_ids` are all its tokens so far, if the sampling reads history; `trace` the id of a trace and of a span in
    it, 16 and 8 bytes, if the sequence's request is traced.
    """

    sampling: Sampling
    prompt_length: int
    history_ids: Ids
    trace: bytes = b""
    adapter: int = 0                     # the number of a loaded one; 0 is none


@dataclass(frozen=True, slots=True)
class Row:
    """Orders a part of one sequence in one step: inputs at positions `start`, `start + 1`, …, and whether a token is
    sampled after. The last `num_drafts` of `token_ids` are guesses: a token is sampled before the first and after each.
    So it is with `num_proposals` more inputs, which the draft model is to name first.
    """

    slot: int
    start: int
    from_last_sample: bool               # the first input is the token that was sampled last in this slot
    token_ids: Ids                       # the inputs that follow
    new_blocks: Blocks                   # appended to the slot's table before the row runs
    is_sampled: bool
    initial_state: InitialState | None = None           # resets the slot
    late_mask: bool = False              # what may be sampled is said by a mask that comes while the model runs
    prompt_logprob_ids: Ids = field(default_factory=lambda: NO_IDS)  # the tokens that follow the first inputs
    num_drafts: int = 0
    num_proposals: int = 0
    count: int = field(init=False, repr=False)          # of inputs; this and what follows is asked for many times
    end: int = field(init=False, repr=False)
    num_guesses: int = field(init=False, repr=False)
    num_samples: int = field(init=False, repr=False)
    first_sample: int = field(init=False, repr=False)   # the position of the first token that is sampled

    def __post_init__(self) -> None:
        count = self.from_last_sample + len(self.token_ids) + self.num_proposals
        num_guesses, end, keep = self.num_drafts + self.num_proposals, self.start + count, object.__setattr__
        keep(self, "count", count)
        keep(self, "end", end)
        keep(self, "num_guesses", num_guesses)
        keep(self, "num_samples", num_guesses + 1 if self.is_sampled else 0)
        keep(self, "first_sample", end - num_guesses)

    @property
    def sample_positions(self) -> range:
        """Returns the positions of all tokens that are sampled."""
        return range(self.first_sample, self.first_sample + self.num_samples)

    @property
    def drafts(self) -> list[int]:
        """Returns the guesses."""
        drafts: list[int] = self.token_ids[len(self.token_ids) - self.num_drafts :].tolist()
        return drafts


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Orders that one block take over what another holds."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Step:
    step_id: int
    cleared_slots: tuple[int, ...]       # freed before the rows are read
    rows: tuple[Row, ...]
    block_copies: tuple[BlockCopy, ...] = ()            # made before the rows run


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Opens a stream: the limits that all its plans keep, and an epoch that tells the stream from earlier ones."""

    epoch: int
    max_slots: int
    max_step_tokens: int
    max_blocks_per_slot: int


TopLogprobs = tuple[tuple[int, float], ...]
"""The likeliest tokens at one position with their logprobs, the likeliest first."""


@dataclass(frozen=True, slots=True)
class RowResult:
    slot: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    top_logprobs: tuple[TopLogprobs, ...] = ()  # for each of token_ids, if asked for
    prompt_logprobs: tuple[float, ...] = ()       # one for each of the row's prompt_logprob_ids, by the logits
    prompt_top_logprobs: tuple[TopLogprobs, ...] = ()  # for each of prompt_logprobs, if asked for


@dataclass(frozen=True, slots=True)
class StepResult:
    step_id: int
    rows: tuple[RowResult, ...]          # those that have results, in plan order; none unless this shard answers
    forward_ns: int                      # model and collectives
    sample_ns: int
    draft_ns: int = 0                    # of the draft model, before the model


@dataclass(frozen=True, slots=True)
class Facts:
    """Tells what the router must know of this shard."""

    model_id: str
    dtype: str
    kv_dtype: str
    block_size: int                      # tokens
    num_blocks: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    context_length: int                  # tokens
    rank: int
    world_size: int
    numerics: str
    weights_digest: str
    settings_digest: str
    step_tokens: int
    memory_id: str                       # new whenever the KV memory began empty
    first_blocks: int                    # of the first of the shards of this rank
    num_states: int = 0                  # of sequences that can run at once; 0 if they have none beside keys and values
    implementation: str = "native"       # or transformers
    keeps_bits: bool = True              # no answer depends on how it is computed
    takes_adapters: bool = False         # whether adapters (LoRA) can be loaded
    draft_context: int = 0               # tokens of a sequence that the draft model takes; 0 if there is none
    group: str = ""                      # its name; empty at a Unix socket
    shards_here: int = 0                 # of the group, at consecutive ports of this machine
    num_stages: int = 1                  # parts of the group that compute a step one after the other
    answering_rank: int = 0              # of the shard whose results carry tokens

    @property
    def answers(self) -> bool:
        return self.rank == self.answering_rank
