"""The bit contract of test_bits.py, for every family and every rotary scaling."""

from pathlib import Path

import numpy as np
import pytest

from penstock.shard.execution.step import Sampling
from tests.shard.ranks import Outputs, make_config, run
from tests.shard.step_programs import Request, alone, batched
from tests.tiny_models import FAMILIES, SCALINGS, WINDOW, make_tiny

VOCAB = 160
MODELS = [*FAMILIES, *SCALINGS]
ONE_OF_EACH = ("mistral, window", "qwen2, window", "qwen3, window, biases")
CHUNKS = (1, 3, 16, 17)
LONGEST = 70                             # more than three windows, across block borders


def make(path: Path, name: str) -> Path:
    """A checkpoint of a family, or of one that has a window with a rotary scaling."""
    family = FAMILIES.get(name, FAMILIES["mistral, window"])
    return make_tiny(path, vocab=VOCAB, rope=SCALINGS.get(name), **family)


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    rng = np.random.default_rng(11)
    lengths = [LONGEST, 1, WINDOW - 1, WINDOW, WINDOW + 1, 50]
    samplings = [Sampling(), Sampling(do_sample=True, seed=2, temperature=0.8, top_p=0.9)]
    return [
        Request(rng.integers(3, VOCAB, length).tolist(), int(rng.integers(2, 8)), samplings[index % 2])
        for index, length in enumerate(lengths)]


@pytest.fixture(scope="module", params=["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("model"), request.param)


@pytest.fixture(scope="module")
def expected(model: Path, dtype: str, requests: list[Request], tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """Every request by itself, its prompt in one step."""
    (outputs,) = run(make_config(model, dtype), [alone(requests)], tmp_path_factory.mktemp("alone"))
    assert [len(tokens) for tokens in outputs] == [request.num_tokens for request in requests]
    return outputs


def test_batched_is_alone(model: Path, dtype: str, requests: list[Request], expected: Outputs, tmp_path: Path) -> None:
    assert run(make_config(model, dtype), [batched(requests, 1)], tmp_path) == [expected]


def test_chunked_is_whole(model: Path, dtype: str, requests: list[Request], expected: Outputs, tmp_path: Path) -> None:
    programs = [alone(requests[:1], chunk=chunk) for chunk in CHUNKS]
    assert run(make_config(model, dtype), programs, tmp_path) == [expected[:1]] * len(CHUNKS)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name == ONE_OF_EACH[-1] else pytest.mark.slow) for name in MODELS])
def test_two_shards_are_one(tmp_path: Path, name: str, requests: list[Request]) -> None:
    config, programs = make_config(make(tmp_path / "model", name), "bfloat16"), [alone(requests), batched(requests, 3)]
    assert run(config, programs, tmp_path, world_size=2) == run(config, programs, tmp_path)
