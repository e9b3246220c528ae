"""States beside keys and values: how many there are, and where they lie."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from penstock.kernels.kv_cache import KvCache
from penstock.kernels.recurrent_state import RecurrentState, StateShape
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.execution.kv_cache import KvMemoryError
from penstock.shard.execution.memory import States
from tests.family_models import make_family
from tests.shard.ranks import make_config

STATES = States(StateShape(3, 40, (2, 8, 4), torch.bfloat16), frozenset({0, 1, 3}))
ONE = 3 * (256 + 2 * 8 * 4 * 4)          # 240 bytes of inputs, aligned


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_family(tmp_path, "qwen3_5")


@pytest.fixture
def memory_fd() -> Iterator[int]:
    fd = os.memfd_create("test")
    yield fd
    os.close(fd)


def test_half_of_the_memory_is_for_states() -> None:
    assert STATES.num_bytes == ONE
    assert [STATES.number(memory * ONE, 100) for memory in (2, 3, 4, 7, 8, 31)] == [1, 1, 2, 2, 4, 8]
    assert STATES.number(1 << 30, 100) == 100


def test_a_memory_for_less_than_one() -> None:
    with pytest.raises(KvMemoryError, match=f"takes {ONE} bytes, and half of the {2 * ONE - 1} for keys, values and "
                                            f"states is less: set --kv-memory to {2 * ONE} or more"):
        STATES.number(2 * ONE - 1, 100)


def test_a_state_lies_in_one_row() -> None:
    state = STATES.shape.allocate(4, torch.device("cpu"))
    state.data.fill_(0xFF)
    state.data[2] = 0
    for tensor in (state.inputs, state.matrices):
        assert tensor.isnan().flatten(1).all(dim=1).tolist() == [True, True, False, True]
        assert not tensor[2].any()
    assert state.matrices.data_ptr() % 64 == 0


def test_blocks_of_a_hybrid_model_have_what_they_need(model: Path) -> None:
    executor = Executor(replace(make_config(model), max_step_rows=5), Group())
    assert [type(memory) for memory in executor.memory.caches] == [RecurrentState, KvCache]
    facts = describe(executor, 64).facts
    assert (facts.num_states, executor.memory.bounds.num_states) == (5, 5)
    assert len(executor.memory.caches[0].data) == 6     # and one for the rows of padding
    assert executor.memory.states is not None
    used = facts.num_blocks * executor.memory.kv_shape.block_bytes + 5 * executor.memory.states.num_bytes
    assert (64 << 20) - executor.memory.kv_shape.block_bytes < used <= 64 << 20


def test_the_next_shard_has_as_many_states(model: Path, memory_fd: int) -> None:
    config = replace(make_config(model), memory_fd=memory_fd, max_step_rows=8)
    first = describe(Executor(config, Group()), 64).facts
    found = describe(Executor(replace(config, max_step_rows=100), Group()), 64).facts
    assert (found.num_states, found.num_blocks) == (first.num_states, first.num_blocks) == (8, first.num_blocks)
