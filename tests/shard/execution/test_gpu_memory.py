"""How much memory keys and values get on a GPU, and what is said when it is too little."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch

from penstock.contract.plan import Plan
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.config import DEFAULT_GRAPHS, MIXED_GRAPHS, ShardConfig
from penstock.shard.devices import gpu, machine
from penstock.shard.devices.gpu import Usage, check_number, check_stages
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.execution.gpu_memory import (
    Needs,
    blocks_that_fit,
    check_room,
    check_weights,
    graph_bytes,
    largest_lengths,
    out_of_memory,
    trial_blocks,
)
from penstock.shard.execution.kv_cache import KvMemoryError, KvShape
from penstock.shard.execution.slots import Bounds
from penstock.shard.startup.trial import check_memory, fit_kv_memory, run_largest_step
from tests.shard.ranks import make_config
from tests.tiny_models import make_tiny

SHAPE = KvShape(num_layers=2, num_kv_heads=2, head_dim=32, block_size=16, dtype=torch.float32)
GIB = 1 << 30
NEEDS = Needs(total=100 * GIB, foreign=GIB, tensors=50 * GIB, graphs=2 * GIB)
CONFIG = ShardConfig(model=Path("m"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


def test_what_is_left_is_for_keys_and_values() -> None:
    """A GPU of 100 GiB, of which others have 1: 2 stay free."""
    assert NEEDS.room(1.0) == pytest.approx(45 * GIB, abs=2)
    assert NEEDS.room(0.9) == pytest.approx(36 * GIB, abs=2)
    assert replace(NEEDS, foreign=20 * GIB).room(0.9) == pytest.approx(26 * GIB, abs=2)
    large = replace(SHAPE, num_layers=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16)
    assert large.block_bytes == 2 << 20
    assert blocks_that_fit(large, NEEDS, CONFIG, 4096) == 45 * 512 - 1, "and one for what pads a graph"
    assert blocks_that_fit(large, NEEDS, replace(CONFIG, kv_memory=8 << 30), 4096) == 4096
    assert blocks_that_fit(SHAPE, NEEDS, CONFIG, 4096) == 1 << 18, "the router keeps an entry for each"


def test_what_does_not_fit_is_said_with_what_helps() -> None:
    with pytest.raises(KvMemoryError) as error:
        blocks_that_fit(SHAPE, replace(NEEDS, tensors=96 * GIB), CONFIG, 4096)
    assert str(error.value) == (
        "The model does not fit: of the GPU's 100.00 GiB others use 1.00 GiB, weights and the largest step of 4096 "
        "tokens 96.00 GiB, graphs 2.00 GiB, 2.00 GiB stay free, and keys and values need 0.00 GiB: 1.00 GiB are "
        "missing. What helps: more GPUs (--num-shard above 1), smaller numbers (--dtype bfloat16, --kv-cache-dtype "
        "fp8_e4m3fn), a --max-batch-prefill-tokens below 4096, or ending what else is on the GPU.")
    with pytest.raises(KvMemoryError) as error:
        blocks_that_fit(SHAPE, NEEDS, replace(CONFIG, kv_memory=40 << 30, cuda_memory_fraction=0.9), 4096)
    assert "of the GPU's 100.00 GiB (of which 0.9 may be used)" in str(error.value)
    assert "keys and values need 40.00 GiB: 4.00 GiB are missing" in str(error.value)
    assert "a --cuda-memory-fraction above 0.9, a smaller --kv-memory" in str(error.value)


def test_weights_that_do_not_fit_are_not_read(model: Path) -> None:
    config = replace(CONFIG, model=model, dtype="bfloat16")
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors")) // 2
    angles = 4 * 32 * 256
    check_weights(config, weights + angles)
    with pytest.raises(KvMemoryError, match=r": max_position_embeddings 256 with head_dim 32: the angles of "):
        check_weights(config, weights)
    with pytest.raises(KvMemoryError, match="The weights do not fit: this shard's part of them takes "):
        check_weights(config, weights // 2)
    check_weights(replace(config, world_size=2), weights // 2 + angles)


@pytest.mark.skipif(dispatch.kernel_set() == "gpu", reason="each shard has a GPU of its own")
def test_the_shards_of_a_machine_share_its_memory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has enough for the weights of one, not for those of both. The other shard sees as much."""
    class Pair(Group):
        def all_gather(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([x, x])
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    monkeypatch.setattr(machine, "available_memory", lambda: weights * 3 // 4)
    message = r"The weights do not fit: .* takes 0.00 GiB, a shard's part \(1/2\) of the machine has 0.00 GiB free, "
    with pytest.raises(KvMemoryError, match=message):
        Executor(replace(make_config(model), world_size=2), Pair(world_size=2))


def test_cudas_own_words_are_kept() -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore")
    assert str(out_of_memory(CONFIG, error)).endswith("In detail: CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_as_many_gpus_as_shards() -> None:
    check_number(2, 2)
    with pytest.raises(ValueError, match="--num-shard 3: each shard computes on a GPU of its own, and torch finds 2"):
        check_number(3, 2)


def test_stages_are_for_processors() -> None:
    check_stages(1)
    with pytest.raises(ValueError, match="--pipeline-parallel-size 2: stages hand on what is in a processor's memory"):
        check_stages(2)


def test_graphs_share_all_but_their_results() -> None:
    assert graph_bytes(0, 0, 0) == 0
    assert graph_bytes(GIB, 7 * 1000 * 4, 3) == GIB + 7 * 1000 * 4 + 3 * (16 << 20)


def test_the_largest_step_must_fit_beside_all_that_stays() -> None:
    check_room(CONFIG, GIB, GIB, kv_bytes=GIB)
    with pytest.raises(KvMemoryError) as error:
        check_room(CONFIG, 3 * GIB, 2 * GIB, kv_bytes=40 * GIB)
    assert str(error.value) == (
        f"The largest step of 4096 tokens in 128 rows does not fit beside weights, keys and values ({40 * GIB} bytes), "
        "and graphs: it takes 3.00 GiB, the GPU has 2.00 GiB left, 1.00 GiB are missing. What helps: a --kv-memory of "
        f"{39 * GIB} or less, a --max-batch-prefill-tokens below 4096, --cuda-graphs 0, or ending what else is on the "
        "GPU.")
    with pytest.raises(KvMemoryError, match="What helps: a --max-batch-prefill-tokens below 4096, "):
        check_room(CONFIG, 3 * GIB, 2 * GIB, kv_bytes=GIB)


def test_sizes_of_graphs() -> None:
    """As far as the batch can grow, and no further; 0 is none."""
    assert replace(CONFIG, max_step_rows=256).graph_sizes == DEFAULT_GRAPHS
    assert CONFIG.graph_sizes == (1, 2, 4, 8, 16, 32, 64, 96, 128)
    assert replace(CONFIG, max_step_rows=40).graph_sizes == (1, 2, 4, 8, 16, 32, 64)
    assert replace(CONFIG, cuda_graphs=(8, 2, 2, 4), max_step_rows=3).graph_sizes == (2, 4)
    assert replace(CONFIG, cuda_graphs=(0,)).graph_sizes == ()
    assert CONFIG.mixed_graph_sizes == MIXED_GRAPHS
    assert replace(CONFIG, max_step_tokens=100).mixed_graph_sizes == (16, 32, 64, 128)
    assert replace(CONFIG, cuda_graphs=(0,)).mixed_graph_sizes == ()


@pytest.mark.parametrize(("context", "num_tokens", "num_rows"), [
    (256, 4096, 128), (10, 500, 3), (4096, 100, 500), (1 << 17, 4096, 1), (16, 16, 1), (250, 1, 1)])
def test_the_largest_step_fits_the_trial(context: int, num_tokens: int, num_rows: int) -> None:
    """It has all the tokens and at least the rows, in the blocks there are, and keeps within the context."""
    config = replace(CONFIG, max_step_tokens=num_tokens, max_step_rows=num_rows)
    num_blocks = trial_blocks(SHAPE, config, context)
    lengths = largest_lengths(Bounds(16, num_blocks, context, 160), num_tokens, num_rows)
    assert sum(lengths) == num_tokens
    assert len(lengths) >= min(num_rows, num_tokens, num_blocks // 2)
    assert max(lengths) <= context
    assert sum(-(-length // 16) for length in lengths) <= num_blocks


def test_the_largest_step_is_as_large_as_a_small_memory_allows() -> None:
    lengths = largest_lengths(Bounds(16, 10, 100, 160), 4096, 128)
    assert lengths == [1, 1, 1, 1, 96]
    assert largest_lengths(Bounds(16, 100, 100, 160, num_states=3), 4096, 128) == [1, 1, 100]


def test_the_largest_step_runs(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice alike, and leaves nothing behind. One row is at the end of the context, so tables are as wide as ever."""
    config = replace(make_config(model), max_step_tokens=300, max_step_rows=20)
    executor = Executor(config, Group())
    steps: list[Plan] = []

    def keep(step: Plan, execute=executor.execute) -> object:  # type: ignore[no-untyped-def]
        steps.append(step)
        return execute(step)
    monkeypatch.setattr(executor, "execute", keep)
    run_largest_step(executor, config)
    run_largest_step(executor, config)
    assert [[row.num_inputs for row in step.rows] for step in steps] == [[1] * 19 + [256, 25]] * 2
    assert all(row.is_sampled for row in steps[0].rows)
    bounds = executor.memory.bounds
    assert (steps[0].rows[0].end, len(steps[0].rows[0].new_blocks)) == (
        bounds.context_length, bounds.context_length // bounds.block_size)
    assert executor._slots is None


def test_memory_is_allocated_anew(model: Path) -> None:
    """With a block more than is told."""
    executor = Executor(make_config(model), Group())
    executor.memory.allocate(40)
    assert executor.memory.bounds.num_blocks == describe(executor, 16).facts.num_blocks == 40
    assert [cache.num_blocks for cache in executor.memory.caches] == [41, 41]


@pytest.mark.parametrize(("graphs", "left"), [((0,), 6), ((1, 4), 6 - 7 * 16 / 1024 - 0.5)])
def test_the_trial_decides_how_many_blocks_there_are(
    model: Path, monkeypatch: pytest.MonkeyPatch, graphs: tuple[int, ...], left: float
) -> None:
    """Of a GPU of 10 GiB that is stood in for: the steps are run, what they take is said here. 1 GiB are others', the
    weights and the largest step take 2.8 GiB, the largest captured steps half a GiB; 2 % of all stay free. Graphs are
    of 1 and 4 rows, and of 16, 32, 64, 128 and 192 tokens, as far as a step has them."""
    config = replace(make_config(model), max_step_tokens=150, max_step_rows=4, cuda_graphs=graphs, block_size=512)
    executor = Executor(config, Group())
    caches = sum(cache.data.nbytes for cache in executor.memory.caches)

    def measure(work: Callable[[], object]) -> Usage:
        work()
        return usages.pop(0)
    usages = [Usage(10 * GIB, GIB, GIB, int(2.8 * GIB) + caches),
              Usage(10 * GIB, GIB, GIB, GIB + GIB // 2 * (len(graphs) > 1))]
    monkeypatch.setattr(gpu, "measure", measure)
    allocated: list[int] = []
    monkeypatch.setattr(executor.memory, "allocate", allocated.append)
    assert fit_kv_memory(executor, replace(config, kv_memory=None)) == int(1.8 * GIB) + caches
    results = 0 if len(graphs) == 1 else 4 * (5 * 160 + 2 * (16 + 32 + 64 + 128 + 192) * 64)
    assert allocated == [(int(left * GIB) - results) // executor.memory.kv_shape.block_bytes - 1]


def test_what_the_trial_leaves_is_checked(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest step is run once more if there is room for it, and otherwise refused."""
    config = replace(make_config(model), max_step_tokens=100, max_step_rows=4)
    executor = Executor(config, Group())
    monkeypatch.setattr(gpu, "obtainable_memory", lambda fraction: GIB)
    with mock.patch.object(executor, "execute", wraps=executor.execute) as execute:
        check_memory(executor, config, GIB)
        assert execute.call_count == 1
        with pytest.raises(KvMemoryError, match=r"it takes 1\.00 GiB, the GPU has 1\.00 GiB left, "):
            check_memory(executor, config, GIB + 1)
        assert execute.call_count == 1
