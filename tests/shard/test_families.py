"""Every native family: transformers' logits and greedy tokens, and the bit contract of test_bits.py."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.shard.models.families import FAMILIES
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.reading import read_model_config
from tests.family_models import FAMILY_MODELS, make_family
from tests.shard import equalities
from tests.shard.equalities import (
    CHUNKS,
    GREEDY_PROMPTS,
    NUM_GREEDY,
    VOCAB,
    first_in_chunks,
    on_shards,
    one_by_one,
    our_greedy_tokens,
    ours,
    their_greedy_tokens,
    theirs,
    together,
    twice_with_losses,
    typical_requests,
)
from tests.shard.ranks import Outputs, make_config, run_each
from tests.shard.step_programs import Request, alone
from tests.tiny_models import SCALINGS, WINDOW, make_tiny

SHARDED_QUICKLY = ("qwen3, window, biases", "falcon, first")


def make(path: Path, name: str) -> Path:
    """A checkpoint of a family, or of one that has a window with a rotary scaling."""
    if name in FAMILY_MODELS:
        return make_family(path, name)
    return make_tiny(path, "mistral", vocab=VOCAB, rope=SCALINGS[name], sliding_window=WINDOW)


@pytest.fixture(scope="module", params=[*FAMILY_MODELS, *SCALINGS])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("model"), request.param)


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return typical_requests()


# Families differ in what is added to what, not in how numbers are added: test_bits.py has both dtypes.
@pytest.fixture(scope="module", params=[
    pytest.param("bfloat16", marks=pytest.mark.slow),
    pytest.param("float32", marks=[pytest.mark.slow, pytest.mark.every_case])])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def expected(model: Path, dtype: str, requests: list[Request], tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    outputs = one_by_one(make_config(model, dtype), requests, tmp_path_factory.mktemp("alone"))
    assert [len(tokens) for tokens in outputs] == [request.num_tokens for request in requests]
    return outputs


@pytest.fixture
def two_threads() -> Iterator[None]:
    with equalities.two_threads():
        yield


def typical_error(logits: Tensor, expected: Tensor) -> float:
    """The median over the tokens: where rounding makes one choose another expert, its logits are others."""
    return float(((logits - expected).double().norm(dim=1) / expected.double().norm(dim=1)).median())


@pytest.mark.slow
def test_every_family_is_in_the_table(tmp_path: Path) -> None:
    folders = [make_family(tmp_path / str(index), name) for index, name in enumerate(FAMILY_MODELS)]
    assert {read_model_config(folder).architecture for folder in folders} == set(FAMILIES)


def test_logits_are_those_of_transformers(model: Path) -> None:
    assert (ours(model, torch.float32) - theirs(model, torch.float32)).abs().max() <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("short", [torch.bfloat16, torch.float16])
def test_short_numbers_are_as_near_as_those_of_transformers(model: Path, short: torch.dtype) -> None:
    expected = theirs(model, torch.float32)
    assert typical_error(ours(model, short), expected) <= 1.2 * typical_error(theirs(model, short), expected)


@pytest.mark.slow
def test_greedy_tokens_are_those_of_transformers(model: Path, tmp_path: Path, every_case: bool) -> None:
    number = NUM_GREEDY if every_case else 32
    if read_model_config(model).context_length < max(GREEDY_PROMPTS) + number:
        pytest.skip("its context ends before")
    assert our_greedy_tokens(model, tmp_path, number) == their_greedy_tokens(model, number)


@pytest.mark.slow
def test_batched_is_alone(model: Path, dtype: str, requests: list[Request], expected: Outputs, tmp_path: Path) -> None:
    assert together(make_config(model, dtype), requests, tmp_path) == expected


@pytest.mark.slow
@pytest.mark.every_case                  # the batches of the test before have chunks, too
def test_chunked_is_whole(model: Path, dtype: str, requests: list[Request], expected: Outputs, tmp_path: Path) -> None:
    assert first_in_chunks(make_config(model, dtype), requests, tmp_path) == [expected[:1]] * len(CHUNKS)


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_cached_and_replayed_is_whole(
    model: Path, dtype: str, requests: list[Request], expected: Outputs
) -> None:
    """By two threads, and in little memory; every prompt comes twice."""
    first, second, counted = twice_with_losses(make_config(model, dtype), requests)
    assert first == second == expected
    has_states = read_model_config(model).recurrence is not None
    assert (counted.hit_tokens == 0) == has_states
    assert counted.replayed > 0


@pytest.mark.parametrize(("names", "sizes"), [
    pytest.param(SHARDED_QUICKLY, (2,), id="some"),
    pytest.param(tuple(FAMILY_MODELS)[::2], (4,), id="half", marks=pytest.mark.slow),  # the next test has the others
    pytest.param(tuple(FAMILY_MODELS), (2, 4), id="all", marks=[pytest.mark.slow, pytest.mark.every_case])])
def test_shards_are_one(
    tmp_path: Path, names: tuple[str, ...], sizes: tuple[int, ...], requests: list[Request]
) -> None:
    configs = [make_config(make(tmp_path / str(index), name), "bfloat16") for index, name in enumerate(names)]
    single = on_shards(configs, requests, tmp_path, 1)
    assert [(size, name) for size in sizes
            for name, one, other in zip(names, on_shards(configs, requests, tmp_path, size), single, strict=True)
            if one != other] == []


@pytest.mark.slow
def test_shards_are_one_where_weights_are_rounded(
    tmp_path: Path, requests: list[Request], every_case: bool
) -> None:
    names = tuple(FAMILY_MODELS) if every_case else tuple(FAMILY_MODELS)[1::2]
    configs = [replace(make_config(make(tmp_path / str(index), name), "bfloat16"), quantize="int8")
               for index, name in enumerate(names)]
    sharded, single = (run_each(configs, [alone(requests[:2])], tmp_path, size) for size in (2, 1))
    assert [name for name, one, other in zip(names, sharded, single, strict=True) if one != other] == []


@pytest.mark.parametrize(("name", "message"), [
    ("gpt2", r"none, for the linears of transformer\.h\.\{index\} are stored \[inputs, outputs\], found"),
    ("granitemoe", r"none, for one tensor has the weights of all experts, found")])
def test_quantised_weights_that_lie_elsewhere_are_refused(tmp_path: Path, name: str, message: str) -> None:
    path = make(tmp_path, name) / "config.json"
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": gptq}))
    with pytest.raises(ModelConfigError, match=f"quantization_config: expected {message}"):
        read_model_config(tmp_path)
