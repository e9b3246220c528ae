"""Builds the tensors of one step: ragged, without padding but for the sizes that a CUDA graph was captured for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.lora import Adapter, AdapterRows
from penstock.shard.devices.device import Array
from penstock.shard.execution.slots import OrderError, SlotTable
from penstock.shard.execution.step import NO_IDS, Row


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
    """Tells which rows are added to a step of decode rows until it has `num_rows`. Each is one token, no matter which,
    at position 0 of a block and in a state that no sequence has."""

    num_rows: int
    scratch_block: int
    scratch_state: int


def build(
    rows: tuple[Row, ...], slots: SlotTable, columns: Mapping[str, Array] | None = None, padding: Padding | None = None
) -> StepInputs:
    """Builds the tensors of rows that `slots` has already taken in: one upload brings them and `columns` to its device.

    Tokens sampled last are read where they lie. The rows come first, then those of the padding, whose step must fit.
    """
    columns = columns or {}
    hosts = _arrange(rows, slots)
    adapters = _adapters(rows, slots)
    if adapters:
        hosts["groups"] = _groups(rows, slots, list(adapters))
    if padding is not None:
        _pad(hosts, padding, slots.bounds.block_size)
    uploaded = slots.device.upload([*hosts.values(), *columns.values()])
    tensors = dict(zip(hosts, uploaded[: len(hosts)], strict=True))
    return StepInputs(
        input_ids=_input_ids(tensors.get("ids"), tensors.get("sources"), slots.last_token),
        metadata=AttentionMetadata(
            positions=tensors["positions"], slot_mapping=tensors["slot_mapping"], tables=tensors["tables"],
            starts=tensors["starts"], counts=tensors["counts"], slots=tensors.get("slots"),
            adapters=AdapterRows(tensors["groups"], tuple(adapters.values())) if adapters else None,
            is_decode=len(hosts["positions"]) == len(hosts["starts"])),
        output_rows=tensors["output_rows"],
        prompt_logprob_rows=tensors["prompt_logprob_rows"],
        prompt_logprob_ids=tensors["prompt_logprob_ids"],
        columns=dict(zip(columns, uploaded[len(hosts) :], strict=True)))


def _arrange(rows: tuple[Row, ...], slots: SlotTable) -> dict[str, Array]:
    """Lays the rows out on the host. `sources` has for each token the slot whose last sample it is, or -1, and `ids`
    has the other tokens; either is left out if it would say nothing."""
    starts = _column(np.int64, rows, (row.start for row in rows))
    counts = _column(np.int64, rows, (row.count for row in rows))
    slot_ids = _column(np.int64, rows, (row.slot for row in rows))
    ends = np.cumsum(counts)
    firsts = ends - counts
    return {
        **_inputs(rows, slot_ids, firsts, int(ends[-1])),
        **place(slot_ids, starts, counts, slots),
        **({} if slots.bounds.num_states is None else {"slots": slot_ids.astype(np.int32)}),
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
    block_size = slots.bounds.block_size
    num_blocks = -(-int((starts + counts).max()) // block_size)
    tables = np.ascontiguousarray(slots.blocks[slot_ids, :num_blocks])
    slot_mapping = tables[row_of_token, positions // block_size].astype(np.int64) * block_size + positions % block_size
    return {"positions": positions, "slot_mapping": slot_mapping, "tables": tables,
            "starts": starts.astype(np.int32), "counts": counts.astype(np.int32)}


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
    return np.repeat(groups, [row.count for row in rows])


def _inputs(
    rows: tuple[Row, ...], slot_ids: npt.NDArray[np.int64], firsts: npt.NDArray[np.int64], num_tokens: int
) -> dict[str, Array]:
    from_last = _column(np.bool_, rows, (row.from_last_sample for row in rows))
    if num_tokens == len(rows) and from_last.all():
        return {"sources": slot_ids}
    known = np.concatenate([row.token_ids for row in rows])
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


def _pad(hosts: dict[str, Array], padding: Padding, block_size: int) -> None:
    """Add the padding's rows to those of `hosts`, each of one token."""
    number = padding.num_rows - len(hosts["starts"])
    values = {"ids": 0, "sources": -1 if "ids" in hosts else 0, "positions": 0, "starts": 0, "counts": 1,
              "slot_mapping": padding.scratch_block * block_size, "tables": padding.scratch_block,
              "slots": padding.scratch_state}
    for name in values.keys() & hosts.keys():
        host = hosts[name]
        hosts[name] = np.concatenate([host, np.full((number, *host.shape[1:]), values[name], host.dtype)])


def _prompt_logprobs(rows: tuple[Row, ...], firsts: npt.NDArray[np.int64]) -> dict[str, Array]:
    """Builds the columns of the tokens whose logprobs are wanted; each row's follow its first inputs, one by one."""
    spans = [(first, row.prompt_logprob_ids)
             for first, row in zip(firsts.tolist(), rows, strict=True) if len(row.prompt_logprob_ids)]
    if not spans:
        return {"prompt_logprob_rows": NO_IDS, "prompt_logprob_ids": NO_IDS}
    return {"prompt_logprob_rows": np.concatenate([np.arange(first, first + len(ids)) for first, ids in spans]),
            "prompt_logprob_ids": np.concatenate([ids for _, ids in spans])}


def _column(dtype: type[Any], rows: tuple[Row, ...], values: Iterable[int]) -> npt.NDArray[Any]:
    return np.fromiter(values, dtype, len(rows))
