"""The tensors of a step, as literals and against a loop over every token."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from penstock.contract.plan import Plan
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels import dispatch
from penstock.kernels.lora import Adapter
from penstock.shard.adapters.store import AdapterStore
from penstock.shard.devices.device import Device
from penstock.shard.execution import batch
from penstock.shard.execution.batch import Padding
from penstock.shard.execution.slots import Bounds, OrderError, SlotTable
from tests.shard.step_programs import BLOCK_SIZE, Request, batched, initial, make_row

BOUNDS = Bounds(4, num_blocks=256, context_length=4096, vocab_size=1000)
LIMITS = StreamLimits(4, 1 << 20, max_blocks_per_slot=256, epoch=1)


def table(block_size: int = 4, max_slots: int = 4) -> SlotTable:
    bounds = replace(BOUNDS, block_size=block_size)
    return SlotTable(replace(LIMITS, max_slots=max_slots), bounds, Device(dispatch.device()))


def note(slots: SlotTable, index: list[int], token_ids: list[int]) -> None:
    rows = [make_row(slot, 0, [1]) for slot in index]
    places, tokens = slots.device.upload([slots.places(rows), np.array(token_ids, np.int64)])
    slots.note_samples(rows, tokens, places)


class Adapters(AdapterStore):
    """Has those of some numbers, whatever they are."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(None)
        self.loaded = {number: Adapter((), torch.empty(0), number) for number in numbers}

    def get(self, number: int) -> Adapter | None:
        return self.loaded.get(number)


def test_rows_have_their_adapters() -> None:
    adapters = Adapters(3, 8, 9)
    slots = SlotTable(LIMITS, BOUNDS, Device(dispatch.device()), adapters)
    rows = tuple(make_row(slot, 0, range(1, 1 + count), new_blocks=[slot], initial_state=initial(count, adapter=number))
                 for slot, (count, number) in enumerate([(2, 8), (1, 0), (3, 3), (1, 8)]))
    slots.apply(Plan(0, rows))
    found = batch.build(rows, slots).metadata.adapters
    assert found is not None
    assert found.groups.tolist() == [1, 1, -1, 0, 0, 0, 1]
    assert [adapter.num_bytes for adapter in found.adapters] == [3, 8]
    assert found.of(torch.tensor([6, 2])).groups.tolist() == [1, -1]
    assert batch.build(rows[1:2], slots).metadata.adapters is None
    del adapters.loaded[8]
    with pytest.raises(OrderError, match="slot 3: adapter 8 was unloaded"):
        batch.build(rows, slots)


def test_a_chunk_beside_a_decode_row() -> None:
    slots = table()
    slots.apply(Plan(0, (make_row(2, 0, [11, 12, 13, 14, 15], new_blocks=[30, 20], initial_state=initial(5)),)))
    note(slots, [2], [77])
    rows = (
        make_row(0, 0, [1, 2, 3], new_blocks=[9], is_sampled=False, initial_state=initial(6)),
        make_row(2, 5, from_last_sample=True),
        make_row(1, 0, [5], new_blocks=[8], initial_state=initial(1)),
    )
    slots.apply(Plan(1, rows))
    inputs = batch.build(rows, slots)
    assert inputs.input_ids.tolist() == [1, 2, 3, 77, 5]
    assert inputs.metadata.positions.tolist() == [0, 1, 2, 5, 0]
    assert inputs.metadata.slot_mapping.tolist() == [36, 37, 38, 81, 32]
    assert inputs.metadata.tables.shape == (3, 2)
    assert inputs.metadata.tables[:, 0].tolist() == [9, 30, 8]
    assert inputs.metadata.tables[1].tolist() == [30, 20]
    assert inputs.metadata.starts.tolist() == [0, 5, 0]
    assert inputs.metadata.counts.tolist() == [3, 1, 1]
    assert inputs.output_rows.tolist() == [3, 4]


def test_the_first_inputs_are_followed_by_tokens_whose_logprobs_are_wanted() -> None:
    slots = table()
    rows = (
        make_row(0, 0, [1, 2, 3], new_blocks=[9], is_sampled=False, initial_state=initial(6),
                 prompt_logprob_ids=[2, 3, 4]),
        make_row(1, 0, [5], new_blocks=[8], initial_state=initial(1)),
        make_row(2, 0, [7, 8, 9], new_blocks=[7], initial_state=initial(3), prompt_logprob_ids=[8, 9]),
    )
    slots.apply(Plan(0, rows))
    inputs = batch.build(rows, slots)
    assert inputs.prompt_logprob_rows.tolist() == [0, 1, 2, 4, 5]
    assert inputs.prompt_logprob_ids.tolist() == [2, 3, 4, 8, 9]
    assert inputs.output_rows.tolist() == [3, 6]


def test_dtypes() -> None:
    slots = table()
    rows = (make_row(0, 0, [1, 2], new_blocks=[3], initial_state=initial(2)),)
    slots.apply(Plan(0, rows))
    inputs = batch.build(rows, slots)
    assert inputs.input_ids.dtype == inputs.output_rows.dtype == torch.int64
    assert inputs.prompt_logprob_rows.dtype == inputs.prompt_logprob_ids.dtype == torch.int64
    assert inputs.input_ids.is_contiguous()
    assert inputs.output_rows.is_contiguous()


def test_last_sample_then_more_tokens() -> None:
    slots = table()
    slots.apply(Plan(0, (make_row(0, 0, [1], new_blocks=[3], initial_state=initial(1)),)))
    note(slots, [0], [50])
    rows = (make_row(0, 1, [51, 52], from_last_sample=True),)
    slots.apply(Plan(1, rows))
    assert batch.build(rows, slots).input_ids.tolist() == [50, 51, 52]


@pytest.mark.parametrize("seed", range(5))
def test_against_a_loop_over_tokens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    requests = [Request(rng.integers(0, 1000, rng.integers(1, 70)).tolist(), int(rng.integers(1, 20)))
                for _ in range(9)]
    slots = table(BLOCK_SIZE, len(requests))
    program = batched(requests, seed)
    for step in program.steps:
        slots.apply(step)
        inputs = batch.build(step.rows, slots)
        token = 0
        for index, row in enumerate(step.rows):
            known = ([int(slots.last_token[row.slot])] if row.from_last_sample else []) + list(row.token_ids)
            for offset, token_id in enumerate(known):
                position = row.start + offset
                block = int(slots.blocks[row.slot, position // BLOCK_SIZE])
                assert inputs.input_ids[token] == token_id
                assert inputs.metadata.positions[token] == position
                assert inputs.metadata.slot_mapping[token] == block * BLOCK_SIZE + position % BLOCK_SIZE
                assert inputs.metadata.tables[index, position // BLOCK_SIZE] == block
                token += 1
        assert token == len(inputs.input_ids)
        sampled = [row.slot for row in step.rows if row.is_sampled]
        assert len(inputs.output_rows) == len(sampled)
        note(slots, sampled, rng.integers(0, 1000, len(sampled)).tolist())


@pytest.mark.parametrize("packs", [False, True])
def test_other_columns_go_along(packs: bool) -> None:
    slots = SlotTable(LIMITS, BOUNDS, Device(dispatch.device(), packs))
    rows = (make_row(0, 0, [1, 2], new_blocks=[3], initial_state=initial(2)), make_row(1, 0, [5], new_blocks=[4],
            initial_state=initial(1)))
    slots.apply(Plan(0, rows))
    columns = {"slots": np.array([0.5, 2], np.float32), "is": np.array([[True], [False]])}
    inputs = batch.build(rows, slots, columns)
    assert {name: column.tolist() for name, column in inputs.columns.items()} == {
        "slots": [0.5, 2.0], "is": [[True], [False]]}
    assert inputs.input_ids.tolist() == [1, 2, 5]
    assert inputs.metadata.slot_mapping.tolist() == [12, 13, 16]
    assert inputs.metadata.tables.tolist() == [[3], [4]]
    assert not inputs.metadata.is_decode


def decode_padding(size: int) -> Padding:
    return Padding(size, size, is_decode=True, scratch_block=256, scratch_state=0)


def test_padding_is_rows_in_a_block_of_their_own() -> None:
    slots = table()
    slots.apply(Plan(0, (make_row(2, 0, [11, 12, 13, 14, 15], new_blocks=[30, 20], initial_state=initial(5)),)))
    note(slots, [2], [77])
    rows = (make_row(2, 5, from_last_sample=True), make_row(1, 0, [5], new_blocks=[8], initial_state=initial(1)))
    slots.apply(Plan(1, rows))
    plain = batch.build(rows, slots)
    padded = batch.build(rows, slots, padding=decode_padding(4))
    assert plain.metadata.is_decode
    assert padded.metadata.is_decode
    assert padded.input_ids.tolist() == [*plain.input_ids.tolist(), 0, 0] == [77, 5, 0, 0]
    assert padded.metadata.positions.tolist() == [5, 0, 0, 0]
    assert padded.metadata.slot_mapping.tolist() == [81, 32, 1024, 1024]
    assert padded.metadata.tables.tolist() == [*plain.metadata.tables.tolist(), [256, 256], [256, 256]]
    assert padded.metadata.starts.tolist() == [5, 0, 0, 0]
    assert padded.metadata.counts.tolist() == [1, 1, 1, 1]
    assert padded.output_rows.tolist() == [0, 1]
    same = batch.build(rows, slots, padding=decode_padding(2))
    assert same.metadata.positions.tolist() == plain.metadata.positions.tolist()


def test_padding_of_rows_that_all_go_on() -> None:
    slots = table()
    slots.apply(Plan(0, tuple(make_row(slot, 0, [slot], new_blocks=[slot], initial_state=initial(1))
                                  for slot in (1, 2))))
    note(slots, [1, 2], [71, 72])
    rows = (make_row(2, 1, from_last_sample=True), make_row(1, 1, from_last_sample=True))
    slots.apply(Plan(1, rows))
    assert batch.build(rows, slots).input_ids.tolist() == [72, 71]
    padded = batch.build(rows, slots, padding=decode_padding(3))
    assert padded.input_ids.tolist()[:2] == [72, 71]
    assert len(padded.input_ids) == 3
    assert 0 <= int(padded.input_ids[2]) < BOUNDS.vocab_size
    assert padded.metadata.positions.tolist() == [1, 1, 0]


def test_padding_of_other_steps_is_one_row() -> None:
    """A chunk of two tokens and a decode row become nine tokens of five rows. Blocks are of four tokens, and each
    position that the padding reads is written."""
    slots = table()
    slots.apply(Plan(0, (make_row(2, 0, [11], new_blocks=[30], initial_state=initial(1)),)))
    note(slots, [2], [77])
    rows = (make_row(1, 0, [5, 6], new_blocks=[8], initial_state=initial(2)), make_row(2, 1, from_last_sample=True))
    slots.apply(Plan(1, rows))
    padding = Padding(9, 5, is_decode=False, scratch_block=256, scratch_state=0)
    padded = batch.build(rows, slots, padding=padding)
    assert not padded.metadata.is_decode
    assert padded.input_ids.tolist() == [5, 6, 77, 0, 0, 0, 0, 0, 0]
    assert padded.metadata.positions.tolist() == [0, 1, 1, 0, 1, 2, 3, 4, 5]
    assert padded.metadata.slot_mapping.tolist() == [32, 33, 121, 1024, 1025, 1026, 1027, 1024, 1025]
    assert padded.metadata.tables.tolist() == [[8, 256], [30, 256], [256, 256], [256, 256], [256, 256]]
    assert padded.metadata.starts.tolist() == [0, 1, 0, 0, 0]
    assert padded.metadata.counts.tolist() == [2, 1, 6, 0, 0]
    assert padded.output_rows.tolist() == [1, 2]
    full = batch.build(rows, slots, padding=replace(padding, num_tokens=3, num_rows=2))
    assert full.metadata.counts.tolist() == [2, 1]
    assert not full.metadata.is_decode


def test_which_steps_a_padding_takes() -> None:
    """Tokens that are added need a row, and rows that decode one token each."""
    decode, other = decode_padding(4), Padding(16, 5, is_decode=False, scratch_block=256, scratch_state=0)
    assert [decode.takes(number, number) for number in range(1, 6)] == [True, True, True, True, False]
    assert not decode.takes(3, 2)
    assert [other.takes(number, 3) for number in (3, 15, 16, 17)] == [True, True, True, False]
    assert [other.takes(number, 5) for number in (15, 16)] == [False, True]
    assert not other.takes(16, 6)
