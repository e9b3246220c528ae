"""Builds the tensors of one step: ragged, without padding but for the sizes that a CUDA graph was captured for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.contract.pooling import POOLING
from penstock.contract.row import Row
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.lora import Adapter, AdapterRows
from penstock.shard.devices.device import Array
from penstock.shard.execution.ids import NO_IDS, as_array
from penstock.shard.execution.slots import Bounds, OrderError, SlotTable


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Describes T tokens of S rows, R of them sampled; the tokens of a row are neighbours, in the order of their
    positions. N of the tokens are followed by one whose prompt logprob is wanted."""

    input_ids: Tensor        # int64 [T]
    metadata: AttentionMetadata  # where they belong; what lies in a table past a sequence's end is garbage
    output_rows: Tensor      # int64 [R]: index into T of the tokens after which one is sampled
    prompt_logprob_rows: Tensor  # int64 [N]: index into T of the tokens before those
    prompt_logprob_ids: Tensor   # int64 [N]: the tokens whose logprobs are wanted
    columns: Mapping[str, Tensor] = field(default_factory=dict)  # what else was uploaded


@dataclass(frozen=True, slots=True)
class Padding:
    """Tells what is added to a step until it has so many tokens and rows: tokens, no matter which, in a block and in a
    state that no sequence has.

    A step of decode rows gets rows of one token. To another a row is added that has all the tokens, then rows without
    any; only if no token is added, it may have all its rows.
    """

    num_tokens: int
    num_rows: int
    is_decode: bool
    scratch_block: int
    scratch_state: int

    def takes(self, num_tokens: int, num_rows: int) -> bool:
        """Tells whether a step that is no larger than this can be padded to it."""
        missing, rows = self.num_tokens - num_tokens, self.num_rows - num_rows
        return missing == rows >= 0 if self.is_decode else missing >= 0 and rows >= min(missing, 1)

    def counts(self, num_tokens: int, num_rows: int) -> Array:
        """Returns the tokens of each row that is added to a step of this size: int32."""
        counts = np.full(self.num_rows - num_rows, self.is_decode, np.int32)
        if not self.is_decode:
            counts[:1] = self.num_tokens - num_tokens
        return counts


def build(
    rows: tuple[Row, ...], slots: SlotTable, columns: Mapping[str, Array] | None = None, padding: Padding | None = None
) -> StepInputs:
    """Builds the tensors of rows that `slots` has already taken in: one upload brings them and `columns` to its device.

    Tokens sampled last are read where they lie. The rows come first, then those of the padding, which must take them.
    """
    columns = columns or {}
    hosts = _arrange(rows, slots)
    adapters = _adapters(rows, slots)
    if adapters:
        hosts["groups"] = _groups(rows, slots, list(adapters))
    if padding is not None:
        pad(hosts, padding, slots.bounds.block_size)
    uploaded = slots.device.upload([*hosts.values(), *columns.values()])
    tensors = dict(zip(hosts, uploaded[: len(hosts)], strict=True))
    return StepInputs(
        input_ids=_input_ids(tensors.get("ids"), tensors.get("sources"), slots.last_token),
        metadata=AttentionMetadata(
            positions=tensors["positions"], slot_mapping=tensors["slot_mapping"], tables=tensors["tables"],
            starts=tensors["starts"], counts=tensors["counts"], slots=tensors.get("slots"),
            adapters=AdapterRows(tensors["groups"], tuple(adapters.values())) if adapters else None,
            texts=tensors.get("texts"),
            is_decode=bool((hosts["counts"] == 1).all())),
        output_rows=tensors["output_rows"],
        prompt_logprob_rows=tensors["prompt_logprob_rows"],
        prompt_logprob_ids=tensors["prompt_logprob_ids"],
        columns=dict(zip(columns, uploaded[len(hosts) :], strict=True)))


def pad(hosts: dict[str, Array], padding: Padding, block_size: int) -> None:
    """Add the padding's tokens and rows to the arrays of a step, those that are there."""
    added = padding.counts(len(hosts["positions"]), len(hosts["starts"]))
    num_rows, num_tokens = len(added), int(added.sum())
    positions = np.zeros(num_tokens, np.int64) if padding.is_decode else np.arange(num_tokens)
    more = -(-int(added.max(initial=0)) // block_size) - hosts["tables"].shape[1]
    if more > 0:                         # the row that is added is the longest of all
        hosts["tables"] = np.pad(hosts["tables"], ((0, 0), (0, more)), constant_values=padding.scratch_block)
    fills = {
        "ids": 0 * positions, "sources": np.full(num_tokens, -1 if "ids" in hosts else 0), "positions": positions,
        "slot_mapping": padding.scratch_block * block_size + positions % block_size,
        "tables": np.full((num_rows, hosts["tables"].shape[1]), padding.scratch_block), "starts": 0 * added,
        "counts": added, "slots": np.full(num_rows, padding.scratch_state)}
    for name in fills.keys() & hosts.keys():
        hosts[name] = np.concatenate([hosts[name], fills[name].astype(hosts[name].dtype)])


def only_padding(padding: Padding, bounds: Bounds) -> dict[str, Array]:
    """Returns the arrays of a step that is all padding, with tables as wide as the context makes them."""
    no_rows, width = np.empty(0, np.int32), -(-bounds.context_length // bounds.block_size)
    hosts: dict[str, Array] = {
        "ids": NO_IDS, "positions": NO_IDS, "slot_mapping": NO_IDS, "tables": np.empty((0, width), np.int32),
        "starts": no_rows, "counts": no_rows, **({} if bounds.num_states is None else {"slots": no_rows})}
    pad(hosts, padding, bounds.block_size)
    return hosts


def _arrange(rows: tuple[Row, ...], slots: SlotTable) -> dict[str, Array]:
    """Lays the rows out on the host. `sources` has for each token the slot whose last sample it is, or -1, and `ids`
    has the other tokens; either is left out if it would say nothing."""
    starts = _column(np.int64, rows, (row.start for row in rows))
    counts = _column(np.int64, rows, (row.num_inputs for row in rows))
    slot_ids = _column(np.int64, rows, (row.slot for row in rows))
    ends = np.cumsum(counts)
    firsts = ends - counts
    return {
        **_inputs(rows, slot_ids, firsts, int(ends[-1])),
        **place(slot_ids, starts, counts, slots),
        **({} if slots.bounds.num_states is None else {"slots": slot_ids.astype(np.int32)}),
        **(_texts(rows, counts, slots) if slots.bounds.is_whole else {}),
        "output_rows": _output_rows(rows, ends),
        **_prompt_logprobs(rows, firsts)}


def place(
    slot_ids: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], slots: SlotTable
) -> dict[str, Array]:
    """Returns where the tokens of some sequences belong, as attention's metadata names it: of each sequence `counts`
    tokens from position `starts` on."""
    ends = np.cumsum(counts)
    row_of_token = np.repeat(np.arange(len(counts)), counts)
    positions = np.arange(ends[-1]) - (ends - counts - starts)[row_of_token]
    of_rows = {"starts": starts.astype(np.int32), "counts": counts.astype(np.int32)}
    if slots.bounds.is_whole:
        return {"positions": positions, "slot_mapping": positions, "tables": np.empty((len(counts), 0), np.int32),
                **of_rows}
    block_size = slots.bounds.block_size
    num_blocks = -(-int((starts + counts).max()) // block_size)
    tables = np.ascontiguousarray(slots.blocks[slot_ids, :num_blocks])
    slot_mapping = tables[row_of_token, positions // block_size].astype(np.int64) * block_size + positions % block_size
    return {"positions": positions, "slot_mapping": slot_mapping, "tables": tables, **of_rows}


def _texts(rows: tuple[Row, ...], counts: npt.NDArray[np.int64], slots: SlotTable) -> dict[str, Array]:
    """Returns which text of a pair each token is of, 0 or 1, if any of the rows has a pair."""
    seconds = [pooling.second if (pooling := slots[row.slot].side_inputs.get(POOLING)) else 0 for row in rows]
    if not any(seconds):
        return {}
    ends = np.cumsum(counts)
    begins = np.where(np.array(seconds) > 0, ends - counts + seconds, ends)
    return {"texts": (np.arange(ends[-1]) >= np.repeat(begins, counts)).astype(np.int64)}


def _output_rows(rows: tuple[Row, ...], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns which tokens are followed by a sampled one: the last of a row, and those before its drafts."""
    samples = _column(np.int64, rows, (row.num_samples for row in rows))
    until = np.cumsum(samples)
    after: npt.NDArray[np.int64] = np.arange(until[-1]) + np.repeat(ends - until, samples)
    return after


def _adapters(rows: tuple[Row, ...], slots: SlotTable) -> dict[int, Adapter]:
    """Returns the adapters of these rows by their numbers, in ascending order. Raises OrderError for one that is gone.
    """
    found = {}
    for number, slot in sorted({slots[row.slot].adapter: row.slot for row in rows}.items()):
        if number and (adapter := slots.adapters.get(number)):
            found[number] = adapter
        elif number:
            raise OrderError(f"slot {slot}: adapter {number} was unloaded")
    return found


def _groups(rows: tuple[Row, ...], slots: SlotTable, numbers: list[int]) -> Array:
    """Returns for each token which of these adapters it has, -1 for none: int32 [T]."""
    places = {number: place for place, number in enumerate(numbers)}
    groups = np.array([places.get(slots[row.slot].adapter, -1) for row in rows], np.int32)
    return np.repeat(groups, [row.num_inputs for row in rows])


def _inputs(
    rows: tuple[Row, ...], slot_ids: npt.NDArray[np.int64], firsts: npt.NDArray[np.int64], num_tokens: int
) -> dict[str, Array]:
    from_last = _column(np.bool_, rows, (row.from_last_sample for row in rows))
    if num_tokens == len(rows) and from_last.all():
        return {"sources": slot_ids}
    known = np.concatenate([as_array(row.token_ids) for row in rows])
    if len(known) == num_tokens:
        return {"ids": known}
    sources = np.full(num_tokens, -1, np.int64)
    sources[firsts[from_last]] = slot_ids[from_last]
    ids = np.zeros(num_tokens, np.int64)
    ids[sources < 0] = known
    return {"ids": ids, "sources": sources}


def _input_ids(ids: Tensor | None, sources: Tensor | None, last_token: Tensor) -> Tensor:
    if sources is None:
        assert ids is not None, "a token is given or was sampled"
        return ids
    sampled = last_token[sources if ids is None else sources.clamp(min=0)]
    return sampled if ids is None else torch.where(sources >= 0, sampled, ids)


def _prompt_logprobs(rows: tuple[Row, ...], firsts: npt.NDArray[np.int64]) -> dict[str, Array]:
    """Builds the columns of the tokens whose logprobs are wanted; each row's follow its first inputs, one by one."""
    spans = [(first, as_array(row.prompt_logprob_ids))
             for first, row in zip(firsts.tolist(), rows, strict=True) if len(row.prompt_logprob_ids)]
    if not spans:
        return {"prompt_logprob_rows": NO_IDS, "prompt_logprob_ids": NO_IDS}
    return {"prompt_logprob_rows": np.concatenate([np.arange(first, first + len(ids)) for first, ids in spans]),
            "prompt_logprob_ids": np.concatenate([ids for _, ids in spans])}


def _column(dtype: type[Any], rows: tuple[Row, ...], values: Iterable[int]) -> npt.NDArray[Any]:
    return np.fromiter(values, dtype, len(rows))
