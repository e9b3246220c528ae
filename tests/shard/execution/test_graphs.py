"""Decode steps that are padded, copied into fixed places and replayed: the bits of those that are not."""

import itertools
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.shard.communication.distributed import Group, connect
from penstock.shard.config import ShardConfig
from penstock.shard.execution.batch import StepInputs
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.graphs import DecodeGraphs
from penstock.shard.models.model import Hidden
from tests.family_models import make_family
from tests.paths import ROOT
from tests.shard.ranks import make_config, run_program
from tests.shard.step_programs import Request, alone, batched, initial, make_row
from tests.tiny_models import make_tiny

SIZES = (1, 2, 4, 7)
MAIN = "import sys; from tests.shard.execution.test_graphs import run_rank; run_rank(sys.argv[1], int(sys.argv[2]))"
RNG = np.random.default_rng(5)
PROMPTS = [RNG.integers(3, 160, int(length)).tolist() for length in (1, 3, 15, 16, 17, 90, 40, 33, 2)]
PROGRAM = batched([Request(prompt, 14 + 4 * index) for index, prompt in enumerate(PROMPTS)], seed=4)
"""Rows of very different lengths, of which some end early: tables become wide and narrow again."""


class Compared:
    """Runs every decode step of an executor a second time, by its graphs, and compares the logits' bits."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.graphs = DecodeGraphs(executor.model, executor.caches, executor.bounds, SIZES)
        self.graphs.capture()
        self.seen: list[tuple[int, int]] = []
        self._logits = executor.model.logits
        self._forward = executor.model.forward
        self._is_replaying = False
        executor.model.forward = self.forward  # type: ignore[method-assign]
        executor.model.logits = self.logits  # type: ignore[method-assign]

    def forward(self, input_ids: Tensor, metadata: AttentionMetadata, caches: list) -> Hidden:  # type: ignore[type-arg]
        hidden = self._forward(input_ids, metadata, caches)
        if not self._is_replaying:
            nothing = input_ids[:0]
            self._inputs = StepInputs(input_ids, metadata, nothing, nothing, nothing)
        return hidden

    def logits(self, hidden: Hidden, rows: Tensor) -> Tensor | None:
        logits = self._logits(hidden, rows)
        inputs = self._inputs
        num_rows = len(inputs.metadata.starts)
        is_decode = len(inputs.input_ids) == num_rows == len(rows)
        if self._is_replaying or not is_decode or num_rows > SIZES[-1]:
            return logits
        self._is_replaying = True
        replayed = self.graphs.replay(self._pad(inputs), num_rows)
        self._is_replaying = False
        assert (replayed is None) == (logits is None)
        if logits is not None and replayed is not None:
            assert replayed.numpy().tobytes() == logits.numpy().tobytes()
        self.seen.append((num_rows, inputs.metadata.tables.shape[1]))
        return logits

    def _pad(self, inputs: StepInputs) -> StepInputs:
        metadata, bounds = inputs.metadata, self._executor.bounds
        number = next(size for size in SIZES if size >= len(metadata.starts)) - len(metadata.starts)

        def more(tensor: Tensor, value: int) -> Tensor:
            return torch.cat([tensor, tensor.new_full((number, *tensor.shape[1:]), value)])
        padded = AttentionMetadata(
            more(metadata.positions, 0), more(metadata.slot_mapping, bounds.num_blocks * bounds.block_size),
            more(metadata.tables, bounds.num_blocks), more(metadata.starts, 0), more(metadata.counts, 1),
            is_decode=True)
        return replace(inputs, input_ids=more(inputs.input_ids, 0), metadata=padded)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


def run_compared(config: ShardConfig, group: Group) -> list[tuple[int, int]]:
    """The rows and the widths of the tables of the steps that were replayed."""
    executor = Executor(config, group)
    compared = Compared(executor)
    run_program(executor, PROGRAM)
    return compared.seen


def check_seen(seen: list[tuple[int, int]]) -> None:
    """Each number of rows was there, and the tables' widths went up and down."""
    assert {rows for rows, _ in seen} == set(range(1, SIZES[-1] + 1))
    widths = [width for _, width in seen]
    assert min(widths) < max(widths)
    assert any(before > after for before, after in itertools.pairwise(widths))
    assert any(before < after for before, after in itertools.pairwise(widths))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_replayed_is_eager(model: Path, dtype: str) -> None:
    check_seen(run_compared(make_config(model, dtype), Group()))


def test_states_are_those_of_steps_that_are_not_replayed(tmp_path: Path) -> None:
    executor = Executor(make_config(make_family(tmp_path, "qwen3_5")), Group())
    expected = run_program(executor, PROGRAM)
    executor.graphs = DecodeGraphs(executor.model, executor.caches, executor.bounds, SIZES)
    executor.graphs.capture()
    assert run_program(executor, PROGRAM) == expected


@pytest.mark.slow
def test_on_two_ranks(model: Path, tmp_path: Path) -> None:
    config = replace(make_config(model), world_size=2, rendezvous=f"file://{tmp_path / 'store'}")
    job = tmp_path / "job"
    job.write_bytes(pickle.dumps(config))
    ranks = [subprocess.Popen([sys.executable, "-c", MAIN, str(job), str(rank)], cwd=ROOT) for rank in range(2)]
    try:
        assert [rank.wait(120) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    seen = [pickle.loads((tmp_path / f"seen-{rank}").read_bytes()) for rank in range(2)]
    assert seen[0] == seen[1]
    check_seen(seen[0])


def run_rank(path: str, rank: int) -> None:
    """One rank of `test_on_two_ranks`, in a process of its own."""
    torch.set_num_threads(1)
    config = replace(pickle.loads(Path(path).read_bytes()), rank=rank)
    group = connect(config.rendezvous, rank, 2)
    Path(path).with_name(f"seen-{rank}").write_bytes(pickle.dumps(run_compared(config, group)))
    group.close()


def test_which_steps_are_captured(model: Path) -> None:
    """Every row must be one sampled token without prompt logprobs, and no more of them than the largest size."""
    executor = Executor(make_config(model), Group())
    graphs = DecodeGraphs(executor.model, executor.caches, executor.bounds, SIZES)
    decode = make_row(0, 5, from_last_sample=True)
    assert [graphs.size_of([decode] * count) for count in range(1, 9)] == [1, 2, 4, 4, 7, 7, 7, None]
    for other in (make_row(1, 0, [4, 5], initial_state=initial(2)),
                  make_row(1, 5, from_last_sample=True, is_sampled=False),
                  make_row(1, 5, from_last_sample=True, prompt_logprob_ids=[3])):
        assert graphs.size_of([decode, other]) is None
    none = DecodeGraphs(executor.model, executor.caches, executor.bounds, ())
    none.capture()
    assert none.size_of([decode]) is None


def test_capturing_changes_no_block(model: Path) -> None:
    """But the one that is nobody's."""
    executor = Executor(make_config(model), Group())
    run_program(executor, alone([Request([5, 6, 7], 4)]))
    before = [cache.data[:-1].clone() for cache in executor.caches]
    graphs = DecodeGraphs(executor.model, executor.caches, executor.bounds, SIZES)
    graphs.run_largest()
    graphs.capture()
    assert all(torch.equal(cache.data[:-1], data) for cache, data in zip(executor.caches, before, strict=True))
    assert not any((cache.data[-1] == 0xFF).all() for cache in executor.caches)
