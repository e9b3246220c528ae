"""The tensors of a step, as literals and against a loop over every token."""

import numpy as np
import pytest
import torch

from shard import batch
from shard.slots import Bounds, SlotTable
from shard.step import Open, Step
from tests.shard.programs import BLOCK_SIZE, Request, batched, make_first, make_row


def table(block_size: int = 4, max_slots: int = 4) -> SlotTable:
    bounds = Bounds(block_size, num_blocks=256, context_length=4096, vocab_size=1000)
    return SlotTable(Open(1, max_slots, 1 << 20, max_blocks_per_slot=256), bounds)


def test_a_chunk_beside_a_decode_row() -> None:
    slots = table()
    slots.apply(Step(0, (), (make_row(2, 0, [11, 12, 13, 14, 15], new_blocks=[30, 20], first=make_first(5)),)))
    slots.note_samples(np.array([2]), torch.tensor([77]))
    rows = (
        make_row(0, 0, [1, 2, 3], new_blocks=[9], is_sampled=False, first=make_first(6)),
        make_row(2, 5, from_last_sample=True),
        make_row(1, 0, [5], new_blocks=[8], first=make_first(1)),
    )
    slots.apply(Step(1, (), rows))
    inputs = batch.build(rows, slots)
    assert inputs.input_ids.tolist() == [1, 2, 3, 77, 5]
    assert inputs.tokens.positions.tolist() == [0, 1, 2, 5, 0]
    assert inputs.tokens.slots.tolist() == [36, 37, 38, 81, 32]
    assert inputs.tokens.tables.shape == (3, 2)
    assert inputs.tokens.tables[:, 0].tolist() == [9, 30, 8]
    assert inputs.tokens.tables[1].tolist() == [30, 20]
    assert inputs.tokens.starts.tolist() == [0, 5, 0]
    assert inputs.tokens.counts.tolist() == [3, 1, 1]
    assert inputs.output_rows.tolist() == [3, 4]


def test_the_first_inputs_are_followed_by_tokens_that_are_scored() -> None:
    slots = table()
    rows = (
        make_row(0, 0, [1, 2, 3], new_blocks=[9], is_sampled=False, first=make_first(6), score_ids=[2, 3, 4]),
        make_row(1, 0, [5], new_blocks=[8], first=make_first(1)),
        make_row(2, 0, [7, 8, 9], new_blocks=[7], first=make_first(3), score_ids=[8, 9]),
    )
    slots.apply(Step(0, (), rows))
    inputs = batch.build(rows, slots)
    assert inputs.scored_rows.tolist() == [0, 1, 2, 4, 5]
    assert inputs.score_ids.tolist() == [2, 3, 4, 8, 9]
    assert inputs.output_rows.tolist() == [3, 6]


def test_dtypes() -> None:
    slots = table()
    rows = (make_row(0, 0, [1, 2], new_blocks=[3], first=make_first(2)),)
    slots.apply(Step(0, (), rows))
    inputs = batch.build(rows, slots)
    assert inputs.input_ids.dtype == inputs.output_rows.dtype == torch.int64
    assert inputs.scored_rows.dtype == inputs.score_ids.dtype == torch.int64
    assert inputs.input_ids.is_contiguous()
    assert inputs.output_rows.is_contiguous()


def test_last_sample_then_more_tokens() -> None:
    slots = table()
    slots.apply(Step(0, (), (make_row(0, 0, [1], new_blocks=[3], first=make_first(1)),)))
    slots.note_samples(np.array([0]), torch.tensor([50]))
    rows = (make_row(0, 1, [51, 52], from_last_sample=True),)
    slots.apply(Step(1, (), rows))
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
            known = ([int(slots.last_token[row.slot])] if row.from_last_sample else []) + row.token_ids.tolist()
            for offset, token_id in enumerate(known):
                position = row.start + offset
                block = int(slots.blocks[row.slot, position // BLOCK_SIZE])
                assert inputs.input_ids[token] == token_id
                assert inputs.tokens.positions[token] == position
                assert inputs.tokens.slots[token] == block * BLOCK_SIZE + position % BLOCK_SIZE
                assert inputs.tokens.tables[index, position // BLOCK_SIZE] == block
                token += 1
        assert token == len(inputs.input_ids)
        sampled = [row.slot for row in step.rows if row.is_sampled]
        assert len(inputs.output_rows) == len(sampled)
        slots.note_samples(np.array(sampled, np.int64), torch.from_numpy(rng.integers(0, 1000, len(sampled))))
