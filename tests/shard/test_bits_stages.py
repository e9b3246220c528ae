"""The bit contract of test_bits.py, where stages of a pipeline have a part of the layers each."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.checkpoints.gguf.folder import checkpoint_of
from penstock.shard.config import ShardConfig
from penstock.shard.models.model_options import AS_STORED
from penstock.shard.models.reading import read_model_config
from tests.adapter_files import LINEARS, make_adapter
from tests.family_models import FAMILY_MODELS, make_family
from tests.gguf_files.demo import Kind, write_demo
from tests.models.quantised import is_read
from tests.shard.equalities import typical_requests
from tests.shard.ranks import make_config, run, run_each
from tests.shard.recorded_orders import record, replay
from tests.shard.scheduler_with_executor import Traffic
from tests.shard.step_programs import Request, alone, batched
from tests.shard.test_bits import conversations, make_requests
from tests.tiny_models import make_tiny

QUICKLY = ("llama, biases", "qwen2_moe, some blocks", "qwen3_next", "granitemoehybrid", "mistral, window")


def in_stages(config: ShardConfig, count: int) -> ShardConfig:
    return replace(config, pipeline_parallel_size=count)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five layers, which no number of stages has equal parts of."""
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny", "mistral", heads=8, kv_heads=4, layers=5,
                     sliding_window=20)


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return conversations(160)


@pytest.mark.parametrize(("names", "world_size"), [
    pytest.param(QUICKLY, 2, id="some"),
    *(pytest.param(tuple(FAMILY_MODELS)[part::4], 2, id=f"part {part}, on 2", marks=pytest.mark.slow)
      for part in range(4)),
    # What ranks of a stage do is what those of a group without stages do, which test_bits.py tries of all families.
    pytest.param(tuple(FAMILY_MODELS)[::4], 4, id="a quarter, on 4", marks=pytest.mark.slow)])
def test_two_stages_are_one(tmp_path: Path, names: tuple[str, ...], world_size: int) -> None:
    """A part of the families' layers in each: attention of all kinds, states, mixtures, embeddings, heads."""
    configs = [make_config(make_family(tmp_path / str(index), name), "bfloat16") for index, name in enumerate(names)]
    requests = typical_requests()
    single = run_each(configs, [alone(requests)], tmp_path)
    staged = run_each([in_stages(config, 2) for config in configs], [batched(requests, 3)], tmp_path, world_size)
    assert [name for name, one, other in zip(names, staged, single, strict=True) if one != other] == []


@pytest.mark.parametrize(("count", "world_size"), [
    (2, 2), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((2, 4), (5, 5), (4, 8)))])
@pytest.mark.parametrize("dtype", [
    "bfloat16", pytest.param("float32", marks=[pytest.mark.slow, pytest.mark.every_case])])
def test_many_stages_are_one(model: Path, dtype: str, tmp_path: Path, count: int, world_size: int) -> None:
    """With masks, all ways of sampling, and prompt logprobs."""
    requests, config = make_requests(160), make_config(model, dtype)
    (expected,) = run(config, [alone(requests)], tmp_path)
    programs = [alone(requests), batched(requests, 3)]
    assert run(in_stages(config, count), programs, tmp_path, world_size) == [expected, expected]


@pytest.mark.parametrize(("count", "world_size"), [
    (2, 2), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((4, 4), (2, 4)))])
@pytest.mark.parametrize("traffic", [
    pytest.param(Traffic(depth=2, max_step_tokens=17), id="small chunks", marks=pytest.mark.slow),
    pytest.param(Traffic(depth=2, arrivals=range(0, 66, 6)), id="cached", marks=pytest.mark.slow),
    pytest.param(Traffic(depth=2, num_blocks=12), id="preempted", marks=pytest.mark.slow),
    pytest.param(Traffic(depth=3, guesses=3, num_blocks=11, losses=(5, 25), arrivals=range(0, 22, 2)),
                 id="all of it, guessed"),
])
def test_the_schedule_changes_nothing(
    model: Path, requests: list[Request], traffic: Traffic, tmp_path: Path, count: int, world_size: int
) -> None:
    """Each stage runs ahead of the next as far as it can."""
    config = make_config(model, "bfloat16")
    (expected,) = run(config, [alone(requests)], tmp_path)
    orders, outputs, counted = record(config, requests, traffic, expected)
    assert outputs == expected
    assert counted.hit_tokens > 0
    assert (counted.preempted > 0) == (traffic.num_blocks < 256)
    assert (counted.accepted > 0) == (traffic.guesses > 0)
    assert replay(in_stages(config, count), orders, tmp_path, world_size) == orders.answers


def test_states_are_kept_by_the_stages_that_have_them(tmp_path: Path) -> None:
    """One stage has all the layers with a state, the other all with keys and values: both have slots for as many."""
    config = make_config(make_family(tmp_path / "model", "qwen3_next"), "bfloat16")
    layers = read_model_config(config.model, AS_STORED).recurrent_blocks
    assert layers == {0}
    requests = typical_requests()
    (expected,) = run(config, [alone(requests)], tmp_path)
    orders, outputs, _ = record(config, requests, Traffic(depth=2, num_blocks=12, losses=(4, 15)), expected)
    assert outputs == expected
    assert replay(in_stages(config, 2), orders, tmp_path, 2) == orders.answers


@pytest.mark.parametrize(("count", "world_size"), [(2, 2), pytest.param(2, 4, marks=pytest.mark.slow)])
def test_adapters_in_stages(model: Path, tmp_path: Path, count: int, world_size: int) -> None:
    """Each stage has its part of an adapter; those of the head alone are nothing to the first."""
    config = make_config(model, "bfloat16")
    targets = [LINEARS, (*LINEARS, "lm_head"), ("lm_head",)]
    adapters = {number: make_adapter(tmp_path / f"adapter-{number}", model, 16, seed=number, targets=own)
                for number, own in enumerate(targets, 1)}
    requests = [replace(request, adapter=index % 4) for index, request in enumerate(make_requests(160))]
    (expected,) = run(config, [alone(requests)], tmp_path, adapters=adapters)
    (without,) = run(config, [alone([replace(request, adapter=0) for request in requests])], tmp_path)
    assert [index % 4 for index, outputs in enumerate(expected) if outputs == without[index]] == [0] * 3
    staged = run(in_stages(config, count), [batched(requests, 3)], tmp_path, world_size, adapters=adapters)
    assert staged == [expected]


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_quantised_weights_in_stages(tmp_path: Path, model: Path, world_size: int) -> None:
    """In formats of libraries, in GGUF, rounded when they are read, and beside a cache of 8 bits."""
    methods = ("gptq", "awq", "compressed-tensors", "fp8")
    plain = make_family(tmp_path / "plain", "llama")
    for method in methods:
        (tmp_path / method).mkdir()
        assert is_read(plain, method, tmp_path / method)
    with checkpoint_of(write_demo(tmp_path / "demo.gguf", Kind.Q4_0)) as gguf:
        configs = [*(make_config(tmp_path / method / "packed", "bfloat16") for method in methods),
                   make_config(gguf, "bfloat16"), replace(make_config(model, "bfloat16"), quantize="int8"),
                   make_config(model, "bfloat16", "int8")]
        programs = [alone([Request(list(range(3, 40)), 4), Request(list(range(9, 60)), 3)])]
        single, staged = (run_each(each, programs, tmp_path, size) for each, size in (
            (configs, 1), ([in_stages(config, 2) for config in configs], world_size)))
    assert staged == single
