"""The engine on the GPU's kernels beside the processor's: on a GPU if there is one, else in Triton's interpreter."""


from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.contract.sampling import Sampling
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from tests import kernel_sets
from tests.shard.ranks import Outputs, make_config, run
from tests.shard.scheduler_with_executor import Traffic, run_traffic
from tests.shard.step_programs import Program, Request, alone, batched
from tests.tiny_models import make_tiny

REQUESTS = [
    Request([5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23], 4),
    Request([31], 5, Sampling(do_sample=True, seed=4, temperature=1.2, top_p=0.9), mask_seed=1),
    Request([101, 50, 4], 4, Sampling(do_sample=True, seed=11, top_k=40, repetition_penalty=1.3, top_n=2),
            wants_prompt_logprobs=True),
    Request([7, 7, 9, 3], 3, Sampling(bias_ids=(7, 9), bias_values=(1.5, -3),
                                      frequency_penalty=0.4, raw_logprobs=True, top_n=1)),
    Request([9, 4], 4, Sampling(allowed_ids=tuple(range(3, 40)), bad_word_lengths=(1,) + (2,) * 37, bad_word_ids=(
        5, *(token for first in range(3, 40) for token in (first, 43 - first)))), mask_seed=4),
]
FAMILIES = [
    {"family": "llama"},
    {"family": "qwen3", "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1, "head_dim": 16},
]
"""With and without biases, norms of heads and a window; the second has heads of an eighth of the width.
It has all that the first has, which --every-case runs."""

TRAFFICS = {
    "cached": Traffic(depth=2, arrivals=range(0, 30, 5)), "replayed": Traffic(depth=2, losses=(2, 9)),
    "guessed": Traffic(depth=2, guesses=3),
    "all of it": Traffic(depth=3, guesses=3, num_blocks=12, max_step_tokens=17, losses=(12,), arrivals=range(0, 24, 4))}
"""How requests may come, and what may happen to them."""


@pytest.fixture(scope="module", params=[
    pytest.param(FAMILIES[0], marks=[pytest.mark.slow, pytest.mark.every_case]), FAMILIES[1]],
                ids=lambda family: family["family"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny", **request.param)


@pytest.fixture(params=kernel_sets.GPU_SETS)
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    kernel_sets.use(monkeypatch, request.param, is_real=True)
    return request.param


def tokens(outputs: Outputs) -> list[list[int]]:
    return [[sampled.token_id for sampled in request] for request in outputs]


def expected(model: Path, programs: list[Program], folder: Path) -> list[Outputs]:
    """What the processor's kernels say."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        kernel_sets.use(monkeypatch, kernel_sets.PROCESSOR_SETS[0])
        return run(make_config(model), programs, folder)


def assert_near(outputs: Outputs, others: Outputs) -> None:
    """The same tokens, and nearly the same of all else."""
    assert tokens(outputs) == tokens(others)
    for request, other in zip(outputs, others, strict=True):
        for sampled, fellow in zip(request, other, strict=True):
            logits, near = (np.frombuffer(each.logits, np.float32) for each in (sampled, fellow))
            np.testing.assert_allclose(logits, near, atol=1e-4)
            assert sampled.logprob == pytest.approx(fellow.logprob, abs=1e-4)
            assert sampled.prompt_logprobs == pytest.approx(fellow.prompt_logprobs, abs=1e-4)
            assert [[token for token, _ in top] for top in sampled.top_logprobs] == [
                [token for token, _ in top] for top in fellow.top_logprobs]


@pytest.mark.slow
def test_tokens_of_the_processor(model: Path, gpu: str, tmp_path: Path) -> None:
    programs = [alone(REQUESTS[:2]), batched(REQUESTS, seed=3)]
    theirs = expected(model, programs, tmp_path)
    for ours, other in zip(run(make_config(model), programs, tmp_path), theirs, strict=True):
        assert_near(ours, other)


@pytest.mark.every_case
@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="NCCL takes a GPU for each rank")
def test_tokens_of_two_ranks(model: Path, gpu: str, tmp_path: Path) -> None:
    programs = [batched(REQUESTS, seed=3)]
    [theirs] = expected(model, programs, tmp_path)
    [ours] = run(make_config(model), programs, tmp_path, world_size=2)
    assert_near(ours, theirs)


@pytest.mark.slow
def test_bits_in_deterministic_mode(
    model: Path, gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every_case: bool
) -> None:
    """Alone, in chunks, in batches: the same logits, tokens and logprobs."""
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", True)
    programs = [alone(REQUESTS), alone(REQUESTS, chunk=3), batched(REQUESTS, seed=3)]
    if every_case:
        programs += [batched(REQUESTS, seed=8)]
    first, *others = run(make_config(model), programs, tmp_path)
    for other in others:
        assert other == first


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAFFICS if kernel_sets.HAS_GPU else [
    pytest.param(name, marks=pytest.mark.every_case) for name in TRAFFICS])
def test_no_schedule_changes_a_bit(
    model: Path, gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Planned ahead, found in the cache, replayed after a loss, guessed right and wrong: each request as alone."""
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", True)
    check_traffic(model, tmp_path, TRAFFICS[name])


@pytest.mark.skipif(not kernel_sets.HAS_GPU, reason="too large for the interpreter")
@pytest.mark.gpu
@pytest.mark.parametrize("name", TRAFFICS)
def test_no_schedule_changes_a_bit_of_a_wide_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Two layers as wide as those of a Llama of 8 billion parameters."""
    kernel_sets.use(monkeypatch, "gpu", is_real=True)
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", True)
    model = make_tiny(tmp_path / "wide", heads=32, kv_heads=8, head_dim=128, hidden=4096, intermediate=14336,
                      dtype=torch.bfloat16)
    check_traffic(model, tmp_path, TRAFFICS[name])


def check_traffic(model: Path, folder: Path, traffic: Traffic) -> None:
    """Pairs of equal requests answer in this traffic what they answer alone, and everything that it names happens."""
    requests = [REQUESTS[0], *REQUESTS, REQUESTS[0]]
    [expected] = run(make_config(model), [alone(requests)], folder)
    outputs, counted = run_traffic(Executor(make_config(model), Group()), requests, traffic, expected)
    assert outputs == expected
    assert (counted.replayed > 0) == bool(traffic.losses)
    assert (counted.drafted > 0) == (traffic.guesses > 0)
    assert counted.hit_tokens > 0 or not traffic.arrivals
