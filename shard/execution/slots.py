"""Mirrors the router's sequences in the shard's slots; it follows orders and decides nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.side_inputs import ADAPTER
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels.sample.parameters import PARAMETERS
from penstock.shard.adapters.store import AdapterStore
from penstock.shard.devices.device import Device
from penstock.shard.execution.bans import BadWords, allowed_mask
from penstock.shard.execution.ids import Ids, as_array
from penstock.shard.execution.masks import Mask
from penstock.shard.execution.side_inputs import read_side_inputs
from penstock.shard.pooling.sums import Running


class OrderError(Exception):
    """Says how an order contradicts the ones before it or the shard's own facts, which is an error of the router's."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Tells what ids and positions must stay below."""

    block_size: int
    num_blocks: int
    context_length: int
    vocab_size: int
    num_states: int | None = None        # of slots that have a recurrent state; None if the model has none
    draft_context: int = 0               # tokens of a sequence that the draft model takes; 0 if there is none
    is_whole: bool = False               # each sequence is computed in one step, and has no blocks
    makes_vectors: bool = False          # and scores, in place of tokens


@dataclass(slots=True)
class Slot:
    """Describes the sequence in a slot, as far as a shard knows it."""

    sampling: Sampling
    prompt_length: int
    num_written: int                     # positions below this one have their K and V in the cache
    num_known: int                       # tokens that the first row brought with it, if the sampling reads them
    bias_ids: Ids
    bias_values: npt.NDArray[np.float32]
    banned_ids: Ids
    allowed: Mask | None = None          # of the tokens that may be sampled; None if all may
    bad_words: BadWords | None = None
    num_blocks: int = 0
    adapter: int = 0                     # the number of a loaded one; 0 is none
    side_inputs: Mapping[str, Any] = field(default_factory=dict)  # by kind, as it was read
    is_kept: bool = False                # all tokens so far are kept, each at its position
    has_sample: bool = False             # or will have, once the step that was launched is done
    running: Running | None = None       # what vectors are made of, of the tokens so far, if they are of all tokens


class SlotTable:
    """Keeps for each slot the block table, the sampling parameters and the token sampled last.

    `apply` takes a step's rows in before it runs, `note_samples` takes in what was sampled. `apply` raises OrderError,
    naming the slot, the limit and the value, for anything that an order can't mean. Positions are known on the host;
    sampled tokens stay on the device, where the next step reads them, so nothing here waits for one. Of a row with
    guesses no sample is kept: which of them hold is for the router to say, and the slot's next row brings them. A draft
    model reads the tokens of all slots, those before a slot's first row excepted.
    """

    def __init__(
        self, limits: StreamLimits, bounds: Bounds, device: Device, adapters: AdapterStore | None = None
    ) -> None:
        if bounds.num_states is not None and limits.max_slots > bounds.num_states:
            raise OrderError(f"max_slots is {limits.max_slots}, and {bounds.num_states} have a recurrent state")
        self.limits = limits
        self.bounds = bounds
        self.device = device
        self.adapters = adapters or AdapterStore(None)
        self.max_history = limits.max_blocks_per_slot * bounds.block_size + 1  # the last token is never an input
        self.blocks = np.zeros((limits.max_slots, limits.max_blocks_per_slot), np.int32)
        self.sampling: dict[str, npt.NDArray[Any]] = {
            each.name: np.zeros(limits.max_slots, _numpy_dtype(each.dtype)) for each in PARAMETERS}
        # The last is for samples that are not kept.
        self.last_token = torch.zeros(limits.max_slots + 1, dtype=torch.int64, device=device.device)
        self._slots: list[Slot | None] = [None] * limits.max_slots
        self._histories: Tensor | None = None
        """int32 [max_slots * max_history + 1], from the first row on that reads one; the last is for all others."""

    def __getitem__(self, slot: int) -> Slot:
        """Returns the sequence in `slot`; raises OrderError if it has had no first row."""
        state = self._slots[slot] if 0 <= slot < len(self._slots) else None
        if state is None:
            self._check_slot(slot)
            raise OrderError(f"slot {slot} has had no first row")
        return state

    def apply(self, step: Plan) -> None:
        """Clear slots, then take in every row: a first row resets its slot, new blocks are appended."""
        num_tokens = sum(row.num_inputs for row in step.rows)
        if num_tokens > self.limits.max_step_tokens:
            raise OrderError(f"step {step.step_id} has {num_tokens} tokens, "
                             f"max_step_tokens is {self.limits.max_step_tokens}")
        if len({row.slot for row in step.rows}) < len(step.rows):
            raise OrderError(f"step {step.step_id} has two rows for one slot: {[row.slot for row in step.rows]}")
        for slot in step.cleared_slots:
            self._clear(slot)
        self._check_copies(step)
        for row in step.rows:
            if row.initial_state:
                self._reset(row.slot, row.start, row.initial_state)
            self._append_blocks(row.slot, row.new_blocks)
            self._advance(row)

    def places(self, rows: Sequence[Row]) -> npt.NDArray[np.int64]:
        """Returns where `note_samples` will write the samples of these rows: in `last_token` and in the histories, [2,
        R]."""
        nowhere = self.limits.max_slots, self.limits.max_slots * self.max_history
        places = [place for row in rows for place in (
            [nowhere] * row.num_samples if row.num_guesses else [(row.slot, self._place(row.slot, row.end))])]
        return np.array(places, np.int64).reshape(-1, 2).T.copy()

    def note_samples(self, rows: Sequence[Row], token_ids: Tensor, places: Tensor) -> None:
        """Keep the tokens [R] just sampled in these rows: as the next steps' inputs, and in the histories.

        Their values are not looked at. `places` is what the method of that name returned, on the device.
        """
        self.expect_samples(rows)
        self.keep_last(token_ids, places)
        if self._histories is not None and any(self[row.slot].is_kept for row in rows):
            self.keep(places[1], token_ids)

    def expect_samples(self, rows: Sequence[Row]) -> None:
        """Take in that tokens are sampled in these rows, whose next ones may begin with them."""
        for row in rows:
            self[row.slot].has_sample = not row.num_guesses

    def keep_last(self, token_ids: Tensor, places: Tensor) -> None:
        """Keep the tokens [R] just sampled as the next steps' inputs alone."""
        self.last_token.index_copy_(0, places[0], token_ids)

    def kept(self, places: Tensor) -> Tensor:
        """Returns the tokens at places of the histories, int64: slot * max_history + position."""
        return self._all_histories()[places].long()

    def keep(self, places: Tensor, token_ids: Tensor) -> None:
        """Keep tokens at places of the histories."""
        self._all_histories().index_copy_(0, places, token_ids.int())

    def history_offsets(self, rows: Sequence[Row]) -> Ids:
        """Returns where the histories of these rows' samples begin when they lie one after the other, and the end: [R +
        1]."""
        lengths = [length for _, length in self._history_spans(rows)]
        offsets = np.zeros(len(lengths) + 1, np.int64)
        if any(lengths):
            np.cumsum(lengths, out=offsets[1:])
        return offsets

    def histories(self, rows: Sequence[Row]) -> Tensor:
        """Returns the tokens before each of these rows' samples, one history after the other: int64 [the last of the
        offsets]. Those before a sample that follows drafts include the drafts."""
        spans = [span for span in self._history_spans(rows) if span[1]]
        if self._histories is None or not spans:
            return torch.empty(0, dtype=torch.int64, device=self.device.device)
        return torch.cat([self._histories[begin : begin + length] for begin, length in spans]).long()

    def token_at(self, slot: int, position: int) -> int | None:
        """Returns the token at a position of the slot's history, if it has one; this waits for the device."""
        if self._histories is None or not self[slot].sampling.reads_history:
            return None
        return int(self._histories[slot * self.max_history + position])

    def _history_spans(self, rows: Sequence[Row]) -> list[tuple[int, int]]:
        """Returns where the history before each sample begins, and its length: 0 if the sampling reads none."""
        return [(row.slot * self.max_history, position if self[row.slot].sampling.reads_history else 0)
                for row in rows for position in row.sample_positions]

    def _place(self, slot: int, position: int) -> int:
        """Returns where a token of this position is kept in the histories."""
        is_kept = self[slot].is_kept
        return (slot if is_kept else self.limits.max_slots) * self.max_history + (position if is_kept else 0)

    def _clear(self, slot: int) -> None:
        self._check_slot(slot)
        self._slots[slot] = None

    def _reset(self, slot: int, start: int, initial_state: InitialState) -> None:
        """Put a new sequence into a slot. It may start behind position 0, if its first blocks are another's, written
        already."""
        self._clear(slot)
        sampling, history_ids = initial_state.sampling, as_array(initial_state.history_ids)
        bias_ids, banned_ids = as_array(sampling.bias_ids), as_array(sampling.banned_ids)
        self._check_ids(slot, "history_ids", history_ids)
        self._check_ids(slot, "bias_ids", bias_ids)
        self._check_ids(slot, "banned_ids", banned_ids)
        self._check_ids(slot, "allowed_ids", as_array(sampling.allowed_ids))
        self._check_ids(slot, "bad_word_ids", as_array(sampling.bad_word_ids))
        if sampling.top_n > self.bounds.vocab_size:
            raise OrderError(
                f"slot {slot}: top_n is {sampling.top_n}, the vocabulary has {self.bounds.vocab_size} tokens")
        side_inputs = read_side_inputs(initial_state.side_inputs)
        if (adapter := side_inputs.get(ADAPTER, 0)) and self.adapters.get(adapter) is None:
            raise OrderError(f"slot {slot}: adapter {adapter} is not loaded")
        if sampling.watermark and not len(history_ids):
            raise OrderError(f"slot {slot}: a watermark needs history_ids, and there are 0")
        is_kept = sampling.needs_history or self.bounds.draft_context > 0
        if is_kept:
            self._keep_history(slot, history_ids)
        self._slots[slot] = Slot(
            sampling, initial_state.prompt_length, num_written=start, num_known=len(history_ids),
            adapter=adapter, side_inputs=side_inputs, bias_ids=bias_ids,
            bias_values=np.array(sampling.bias_values, np.float32), banned_ids=banned_ids,
            allowed=allowed_mask(sampling, self.bounds.vocab_size), bad_words=BadWords.of(sampling), is_kept=is_kept)
        for name, column in self.sampling.items():
            column[slot] = getattr(sampling, name)

    def _keep_history(self, slot: int, ids: Ids, start: int = 0) -> None:
        """Keep tokens of a history, from position `start` on, on the device."""
        if len(ids) > self.max_history:
            raise OrderError(f"slot {slot}: {len(ids)} history_ids, and {self.limits.max_blocks_per_slot} blocks and "
                             f"a token sampled after them have {self.max_history} tokens")
        begin = slot * self.max_history + start
        self._all_histories()[begin : begin + len(ids)] = self.device.upload([ids.astype(np.int32)])[0]

    def _all_histories(self) -> Tensor:
        if self._histories is None:
            self._histories = torch.empty(
                self.limits.max_slots * self.max_history + 1, dtype=torch.int32, device=self.device.device)
        return self._histories

    def _append_blocks(self, slot: int, blocks: Sequence[int]) -> None:
        state = self[slot]
        if len(blocks) == 0:
            return
        if min(blocks) < 0 or max(blocks) >= self.bounds.num_blocks:
            raise OrderError(f"slot {slot}: new_blocks {list(blocks)} go beyond num_blocks {self.bounds.num_blocks}")
        end = state.num_blocks + len(blocks)
        if end > self.limits.max_blocks_per_slot:
            raise OrderError(f"slot {slot}: {end} blocks, max_blocks_per_slot is {self.limits.max_blocks_per_slot}")
        self.blocks[slot, state.num_blocks:end] = blocks
        state.num_blocks = end

    def _advance(self, row: Row) -> None:
        state, end, room = self[row.slot], row.end, self.bounds.context_length
        if self.bounds.is_whole:
            self._check_whole(row, state)
        else:
            room = min(state.num_blocks * self.bounds.block_size, room)
        if row.output is (Output.SAMPLE if self.bounds.makes_vectors else Output.POOL):
            raise OrderError(f"slot {row.slot}: a row that yields {row.output.name}, of a model that makes "
                             f"{'vectors and scores' if self.bounds.makes_vectors else 'tokens'}")
        if row.start > state.num_written:
            raise OrderError(f"slot {row.slot}: start {row.start} jumps ahead of position {state.num_written}, "
                             "the first that is not written")
        if self.bounds.num_states is not None and row.start != state.num_written:
            raise OrderError(f"slot {row.slot}: start {row.start}, but its recurrent state has come to position "
                             f"{state.num_written}")
        if end > room:
            raise OrderError(f"slot {row.slot}: positions up to {end - 1}, but {state.num_blocks} blocks and a "
                             f"context of {self.bounds.context_length} tokens end at {room - 1}")
        if row.from_last_sample and not state.has_sample:
            raise OrderError(f"slot {row.slot}: from_last_sample, but nothing has been sampled in it")
        if row.is_sampled and row.first_sample < state.prompt_length:
            raise OrderError(f"slot {row.slot}: a token sampled after position {row.first_sample - 1}, "
                             f"inside the prompt of {state.prompt_length} tokens")
        if row.num_guesses and self.bounds.num_states is not None:
            raise OrderError(f"slot {row.slot}: {row.num_guesses} drafts, which a recurrent state can't take back")
        if row.num_proposals and end > self.bounds.draft_context:
            raise OrderError(f"slot {row.slot}: proposals up to position {end - 1}, and the draft model takes "
                             f"{self.bounds.draft_context} tokens")
        if row.late_mask and not row.is_sampled:
            raise OrderError(f"slot {row.slot}: a mask comes late for a row that samples nothing")
        self._check_ids(row.slot, "prompt_logprob_ids", as_array(row.prompt_logprob_ids))
        if len(row.token_ids):
            token_ids, behind = as_array(row.token_ids), end - row.num_proposals
            self._check_ids(row.slot, "token_ids", token_ids)
            if state.is_kept and behind > state.num_known:
                self._keep_history(row.slot, token_ids, behind - len(token_ids))
        state.num_written = end

    def _check_whole(self, row: Row, state: Slot) -> None:
        if row.start or row.end != state.prompt_length or row.is_sampled or row.num_guesses or row.prompt_logprob_ids:
            raise OrderError(f"slot {row.slot}: tokens from {row.start} up to {row.end} of a text of "
                             f"{state.prompt_length}, which is computed whole, and yields no tokens")

    def _check_copies(self, step: Plan) -> None:
        named = [block for copy in step.block_copies for block in (copy.source, copy.target)]
        if named and max(named) >= self.bounds.num_blocks:
            raise OrderError(f"step {step.step_id}: block_copies name block {max(named)}, num_blocks is "
                             f"{self.bounds.num_blocks}")
        targets = {copy.target for copy in step.block_copies}
        if len(targets) < len(step.block_copies) or targets & {copy.source for copy in step.block_copies}:
            raise OrderError(f"step {step.step_id}: block_copies name the target of one of them again: {named}")

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.limits.max_slots:
            raise OrderError(f"slot {slot} is out of range: max_slots is {self.limits.max_slots}")

    def _check_ids(self, slot: int, name: str, ids: Ids) -> None:
        if len(ids) and (ids.min() < 0 or ids.max() >= self.bounds.vocab_size):
            raise OrderError(f"slot {slot}: {name} has {ids.max()}, the vocabulary has {self.bounds.vocab_size} tokens")


def _numpy_dtype(dtype: torch.dtype) -> npt.DTypeLike:
    return str(dtype).removeprefix("torch.")
