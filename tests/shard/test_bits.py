"""The bit contract: equal requests get equal logits, tokens and logprobs, however the steps are made up."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.contract.sampling import Sampling
from penstock.kernels import native
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from tests import kernel_sets
from tests.shard.ranks import Outputs, make_config, run
from tests.shard.scheduler_with_executor import Traffic, run_traffic
from tests.shard.step_programs import Request, alone, batched
from tests.tiny_models import DEMO_MODEL, make_tiny

SAMPLINGS = (
    Sampling(),
    Sampling(do_sample=True, seed=1),
    Sampling(do_sample=True, seed=2**64 - 1, temperature=0.7, top_k=20, allowed_ids=tuple(range(3, 90, 2)),
             bad_word_ids=(7, 9), bad_word_lengths=(1, 1)),
    Sampling(do_sample=True, seed=3, temperature=1.3, top_p=0.8),
    Sampling(bad_word_ids=(5, *(token for first in range(3, 60) for token in (first, 63 - first))),
             bad_word_lengths=(1,) + (2,) * 57, repetition_penalty=1.4),
    Sampling(do_sample=True, seed=5, typical_p=0.7, repetition_penalty=1.2, share_penalty=0.9),
    Sampling(do_sample=True, seed=6, temperature=0.9, top_k=30, top_p=0.9, share_penalty=0.4),
    Sampling(do_sample=True, seed=7, branch=2, min_p=0.05, presence_penalty=0.6, top_n=3),
    Sampling(do_sample=True, seed=7, branch=3, frequency_penalty=0.4, raw_logprobs=True, top_n=2),
    Sampling(bias_ids=(7, 9, 7), bias_values=(1.5, -3, 0.25),
             banned_ids=(2, 11, 40), min_tokens=4, top_n=1),
    Sampling(of_logprobs=True, repetition_penalty=1.3, bias_ids=(5,), bias_values=(2.0,), top_n=20),
    Sampling(do_sample=True, seed=8, watermark=True, temperature=0.8, raw_logprobs=True, top_n=1),
)
CHUNKS = (1, 3, 16, 17, 64)


SIZES = (*range(1, 18), *(border + offset for border in (24, 32, 48, 64) for offset in (-1, 0, 1)), *range(80, 301, 20))
"""Of chunks: small ones, those about the borders of tiles and blocks, and some that are large."""
BORDERS = (1, 15, 16, 17, 33, 64, 140, 300)
"""Of these, the ones that kernels take which do not serve on this machine."""


def set_threads(count: int) -> None:
    torch.set_num_threads(count)
    native.library.set_threads(count, None)


def make_requests(vocab_size: int, num_requests: int = 12) -> list[Request]:
    """Every third waits for masks, every second wants its prompt's logprobs."""
    rng = np.random.default_rng(7)
    return [
        Request(
            rng.integers(3, vocab_size, int(length)).tolist(), int(rng.integers(1, 12)),
            SAMPLINGS[index % len(SAMPLINGS)], mask_seed=index if index % 3 == 2 else None,
            wants_prompt_logprobs=index % 2 == 1)
        for index, length in enumerate([1, 16, 17, 140, *rng.integers(2, 60, num_requests - 4)])]


@pytest.fixture(scope="module", autouse=True, params=[
    kernel_sets.PROCESSOR_SETS[0],
    *(pytest.param(name, marks=pytest.mark.slow) for name in kernel_sets.PROCESSOR_SETS[1:])])
def kernel_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """The quick suite has the kernels that serve on this machine, the slow one the reference and other paths. Those of
    GPUs, which keep the contract where it is asked for, are in test_gpu_kernels.py."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        kernel_sets.use(monkeypatch, request.param)
        yield request.param


@pytest.fixture(scope="module", params=["tiny", pytest.param("demo", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest, kernel_set: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "demo":
        if kernel_set == "reference" and not request.config.getoption("every_case"):
            pytest.skip("--every-case also runs the reference, which has no tiles, on a model that fills tiles")
        return DEMO_MODEL
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny", heads=8, kv_heads=4)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest, kernel_set: str, model: Path) -> str:
    """Of the paths that do not serve on this machine, each has each model and each dtype, --every-case all four."""
    is_served, is_demo = kernel_set in (kernel_sets.PROCESSOR_SETS[0], "reference"), model == DEMO_MODEL
    if not is_served and is_demo != (request.param == "float32") and not request.config.getoption("every_case"):
        pytest.skip("--every-case also runs the other dtype of this model on this path")
    return str(request.param)


@pytest.fixture(scope="module")
def requests(model: Path) -> list[Request]:
    return make_requests(8192 if model == DEMO_MODEL else 160)


@pytest.fixture(scope="module")
def expected(
    kernel_set: str, model: Path, dtype: str, requests: list[Request], tmp_path_factory: pytest.TempPathFactory
) -> Outputs:
    """Every request by itself, its prompt in one step."""
    (outputs,) = run(make_config(model, dtype), [alone(requests)], tmp_path_factory.mktemp("alone"))
    assert [len(tokens) for tokens in outputs] == [request.num_tokens for request in requests]
    for tokens, request in zip(outputs, requests, strict=True):
        number = len(request.prompt) - 1 if request.wants_prompt_logprobs else 0
        assert [len(sampled.prompt_logprobs) for sampled in tokens] == [number] + [0] * (len(tokens) - 1)
        assert len(tokens[0].prompt_top_logprobs) == number * (request.sampling.top_n > 0)
    return outputs


def test_batched_is_alone(
    model: Path, dtype: str, requests: list[Request], expected: Outputs, tmp_path: Path
) -> None:
    programs = [batched(requests, seed) for seed in (1, 2)]
    assert run(make_config(model, dtype), programs, tmp_path) == [expected, expected]


def test_chunked_is_whole(
    model: Path, dtype: str, requests: list[Request], expected: Outputs, tmp_path: Path
) -> None:
    """Prompt logprobs too, though their logits are computed in slices that are cut at other places."""
    longest = max(range(len(requests)), key=lambda index: len(requests[index].prompt))
    with_top = next(i for i, request in enumerate(requests) if request.wants_prompt_logprobs and request.sampling.top_n)
    programs = [alone([requests[longest], requests[with_top]], chunk=chunk) for chunk in CHUNKS]
    whole = [expected[longest], expected[with_top]]
    assert run(make_config(model, dtype), programs, tmp_path) == [whole] * len(CHUNKS)


@pytest.mark.slow
@pytest.mark.parametrize("kv_cache_dtype", ["int8"])
def test_a_cache_of_8_bits_keeps_the_contract(
    model: Path, dtype: str, requests: list[Request], expected: Outputs, tmp_path: Path, kv_cache_dtype: str
) -> None:
    """Its bits are its own, whatever the steps, and the number of shards and of threads."""
    config, requests = make_config(model, dtype, kv_cache_dtype), requests[:7]
    programs = [alone(requests), alone(requests, chunk=17), batched(requests, 1)]
    whole, *others = run(config, programs, tmp_path)
    assert others == [whole, whole]
    assert whole != expected[:7]
    assert run(config, [batched(requests, 3)], tmp_path, world_size=2) == [whole]
    set_threads(2)
    try:
        traffic = Traffic(depth=2, num_blocks=64, losses=(5, 45))
        executor = Executor(config, Group())
        outputs, counted = run_traffic(executor, requests, traffic)
    finally:
        set_threads(1)
    assert outputs == whole
    assert counted.replayed > 0
    assert describe(executor, 1).facts.kv_dtype == kv_cache_dtype


@pytest.mark.slow
@pytest.mark.parametrize("number_format", ["float32", "bfloat16"])
def test_any_chunk_size(kernel_set: str, number_format: str, tmp_path: Path, every_case: bool) -> None:
    """Across the borders of blocks, of attention's tiles and of the linear layers' tiles."""
    prompt = np.random.default_rng(5).integers(3, 8192, 310).tolist()
    request = Request(prompt, 3, Sampling(do_sample=True, seed=4, temperature=0.9))
    config = make_config(DEMO_MODEL, number_format)
    sizes = range(1, 301) if every_case else SIZES if kernel_set == kernel_sets.PROCESSOR_SETS[0] else BORDERS
    chunkings = [alone([request], chunk=size) for size in sizes]
    whole, *chunked = run(config, [alone([request]), *chunkings], tmp_path)
    assert [size for size, outputs in zip(sizes, chunked, strict=True) if outputs != whole] == []


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_many_shards_are_one(
    model: Path, dtype: str, requests: list[Request], expected: Outputs, tmp_path: Path, world_size: int
) -> None:
    programs = [alone(requests), batched(requests, 3)]
    assert run(make_config(model, dtype), programs, tmp_path, world_size) == [expected, expected]


def test_two_threads_are_one(
    model: Path, dtype: str, requests: list[Request], expected: Outputs, tmp_path: Path
) -> None:
    set_threads(2)
    try:
        assert run(make_config(model, dtype), [batched(requests, 4)], tmp_path) == [expected]
    finally:
        set_threads(1)


def test_another_seed_is_another_answer(model: Path, dtype: str, expected: Outputs, tmp_path: Path) -> None:
    """The equalities above would also hold if nothing depended on anything."""
    assert len({sampled.logits for tokens in expected for sampled in tokens}) == sum(len(tokens) for tokens in expected)
    prompt = list(range(3, 20))
    seeded = [Request(prompt, 8, Sampling(do_sample=True, seed=seed)) for seed in (1, 2)]
    (outputs,) = run(make_config(model, dtype), [alone(seeded)], tmp_path)
    first, second = ([sampled.token_id for sampled in tokens] for tokens in outputs)
    assert first != second
    assert outputs[0][0].logits == outputs[1][0].logits


def conversations(vocab_size: int) -> list[Request]:
    """Prompts that share beginnings: pairs of equal ones, and ones that go on where others end."""
    rng = np.random.default_rng(11)
    begin = rng.integers(3, vocab_size, 40).tolist()
    longer = [*begin, *rng.integers(3, vocab_size, 50).tolist()]
    prompts = [begin, longer, begin, longer, longer[:70], [*begin[:33], 5, 6], *(
        rng.integers(3, vocab_size, 20).tolist() for _ in range(4))]
    return [
        Request(prompt, 14 + index, SAMPLINGS[index % len(SAMPLINGS)], mask_seed=index if index % 4 == 3 else None,
                wants_prompt_logprobs=index in (1, 8)) for index, prompt in enumerate([*prompts, prompts[-1]])]


TRAFFICS = {
    "depth 1": Traffic(),
    "depth 2": Traffic(depth=2),
    "depth 3 and small chunks": Traffic(depth=3, max_step_tokens=17),
    "cached": Traffic(depth=2, arrivals=range(0, 66, 6)),
    "preempted": Traffic(depth=2, num_blocks=12),
    "replayed": Traffic(depth=2, losses=(2, 9, 30, 31)),
    "continued": Traffic(depth=2, losses=(2, 9, 30, 31), keeps_memory=True),
    "all of it": Traffic(depth=2, num_blocks=11, losses=(5, 45), arrivals=range(0, 22, 2)),
    "guessed": Traffic(depth=2, guesses=5),
    "all of it, guessed": Traffic(depth=3, guesses=3, num_blocks=11, losses=(5, 25), arrivals=range(0, 22, 2)),
}
BY_OTHER_KERNELS = ("depth 3 and small chunks", "all of it, guessed")


@pytest.mark.parametrize("name", TRAFFICS)
def test_the_schedule_changes_nothing(
    kernel_set: str, model: Path, dtype: str, name: str, tmp_path: Path, every_case: bool
) -> None:
    """Cached = fresh, depth 2 = depth 1, replayed = undisturbed: each request as by itself, its prompt in one step."""
    if kernel_set != kernel_sets.PROCESSOR_SETS[0] and name not in BY_OTHER_KERNELS and not every_case:
        pytest.skip("--every-case also runs it by the kernels that don't serve on this machine")
    traffic = TRAFFICS[name]
    requests = conversations(8192 if model == DEMO_MODEL else 160)
    config = make_config(model, dtype)
    (expected,) = run(config, [alone(requests)], tmp_path)
    outputs, counted = run_traffic(Executor(config, Group()), requests, traffic, expected)
    assert outputs == expected
    assert (0 < counted.accepted < counted.drafted) == (traffic.guesses > 0)
    assert counted.forked > 0 or traffic.guesses == 0 or traffic.losses
    assert (counted.preempted > 0) == (traffic.num_blocks < 256)
    assert (counted.replayed > 0) == bool(traffic.losses)
    assert counted.hit_tokens > 0
