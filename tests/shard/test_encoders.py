"""Every family of encoders: transformers' hidden states, and bits that depend on nothing but the text."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels.linear.tiled import has_tiles
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.execution.model import load_model
from penstock.shard.execution.slots import OrderError
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.startup.measure import measure_step_tokens
from tests.encoder_models import CONTEXT, ENCODER_MODELS, VOCAB, make_adapter, make_encoder, merge
from tests.shard.ranks import make_config
from tests.shard.whole_texts import on_ranks, run_whole, states_of, texts, their_states

LENGTHS = (19, 30, 1, 2, CONTEXT - 4, 64)
SHARDED_QUICKLY = ("bert",)
NEAR = 5e-4 if has_tiles() else 1e-4     # in tiles a product is off by 2^-16 at most


@pytest.fixture(scope="module", params=ENCODER_MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("model"), request.param)


def test_hidden_states_are_those_of_transformers(model: Path) -> None:
    executor = Executor(make_config(model), Group())
    given = texts(LENGTHS, VOCAB)
    for expected, found in zip(their_states(model, given), run_whole(executor, [given]), strict=True):
        torch.testing.assert_close(states_of(found, expected.shape[1]), expected, rtol=NEAR, atol=NEAR)


@pytest.mark.parametrize("name", ["roberta", "mpnet", "bert"])
def test_padding_amid_a_text_has_transformers_position(tmp_path: Path, name: str) -> None:
    path = make_encoder(tmp_path, name)
    padding = json.loads((path / "config.json").read_text())["pad_token_id"]
    given = [replace(text, ids=(*text.ids[:place], padding, *text.ids[place + 1:]))
             for text, place in zip(texts((9, 5, 12), VOCAB), (4, 0, 11), strict=True)]
    executor = Executor(make_config(path), Group())
    together = run_whole(executor, [given])
    for expected, found in zip(their_states(path, given), together, strict=True):
        torch.testing.assert_close(states_of(found, expected.shape[1]), expected, rtol=1e-4, atol=1e-4)
    assert together == run_whole(executor, [[text] for text in given])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bits_are_the_same_alone_and_batched(model: Path, dtype: str) -> None:
    executor = Executor(make_config(model, dtype), Group())
    given = texts(LENGTHS, VOCAB)
    alone = run_whole(executor, [[text] for text in given])
    assert run_whole(executor, [given]) == alone
    assert run_whole(executor, [given[::-1]]) == alone[::-1]


@pytest.mark.parametrize(("names", "sizes"), [
    pytest.param(SHARDED_QUICKLY, (2,), id="one"),
    pytest.param(tuple(ENCODER_MODELS), (2, 4), id="all", marks=pytest.mark.slow)])
def test_bits_are_the_same_on_shards(tmp_path: Path, names: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    configs = [make_config(make_encoder(tmp_path / name, name), "bfloat16") for name in names]
    single, *sharded = (on_ranks(configs, [texts(LENGTHS, VOCAB)], tmp_path, size) for size in (1, *sizes))
    assert [(size, name) for size, outputs in zip(sizes, sharded, strict=True)
            for name, one, other in zip(names, outputs, single, strict=True) if one != other] == []


@pytest.mark.parametrize("architecture", ["T5EncoderModel", "CLIPModel", "BertForQuestionAnswering"])
def test_a_model_of_another_kind_is_told_what_there_is(tmp_path: Path, architecture: str) -> None:
    path = make_encoder(tmp_path, "bert")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"architectures": [architecture]}))
    with pytest.raises(ModelConfigError, match=f"LlamaForCausalLM.*ModernBert.*found \\['{architecture}'\\]"):
        load_model(make_config(path), Group())


@pytest.mark.parametrize(("name", "targets"), [
    ("bert, classes", ["query", "value", "intermediate.dense"]), ("nomic", ["Wqkv", "fc2"]),
    ("modernbert", ["Wqkv", "Wo", "Wi"])])
def test_adapters(tmp_path: Path, name: str, targets: list[str]) -> None:
    """Some texts of a step have an adapter, whose matrices lie where its module's weights would be."""
    path = make_encoder(tmp_path / "model", name, num_hidden_layers=2)
    adapter = make_adapter(tmp_path / "adapter", path, targets)
    executor = Executor(make_config(path), Group())
    executor.adapters.load(1, adapter).result()
    given = [replace(text, adapter=index % 2) for index, text in enumerate(texts(LENGTHS, VOCAB))]
    found = run_whole(executor, [given])
    assert found == run_whole(executor, [[text] for text in given])
    plain = [replace(text, adapter=0) for text in given]
    base = run_whole(executor, [plain])
    merged = run_whole(Executor(make_config(merge(tmp_path / "merged", path, adapter)), Group()), [plain])
    for text, own, without, expected in zip(given, found, base, merged, strict=True):
        assert (own == without) == (text.adapter == 0)
        if text.adapter:
            torch.testing.assert_close(states_of(own, 64), states_of(expected, 64), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("quantize", ["int8", "bitsandbytes-nf4"])
def test_rounded_weights(tmp_path: Path, quantize: str) -> None:
    path, given = make_encoder(tmp_path, "bert, classes"), texts(LENGTHS, VOCAB)
    plain = run_whole(Executor(make_config(path), Group()), [given])
    executor = Executor(replace(make_config(path), quantize=quantize), Group())
    alone = run_whole(executor, [[text] for text in given])
    assert run_whole(executor, [given]) == alone
    least = {"int8": 0.9995, "bitsandbytes-nf4": 0.8}[quantize]
    for states, expected in zip(alone, plain, strict=True):
        assert states != expected
        assert torch.cosine_similarity(states_of(states, 64), states_of(expected, 64)).min() > least


def test_it_keeps_nothing_of_a_text(tmp_path: Path) -> None:
    executor = Executor(make_config(make_encoder(tmp_path, "bert")), Group())
    assert executor.memory.bounds.num_blocks == 0
    assert not executor.memory.caches
    assert measure_step_tokens(executor, Group(), most=32) == 32
    facts = describe(executor, 32).facts
    assert (facts.num_blocks, facts.first_blocks, facts.eos_token_ids) == (0, 0, frozenset())


@pytest.mark.parametrize(("start", "count", "output"), [
    (0, 3, Output.POOL), (1, 4, Output.POOL), (0, 4, Output.SAMPLE)])
def test_a_text_that_is_not_whole_is_refused(tmp_path: Path, start: int, count: int, output: Output) -> None:
    executor = Executor(make_config(make_encoder(tmp_path, "bert")), Group())
    executor.open(StreamLimits(max_slots=1, max_step_tokens=16, max_blocks_per_slot=0))
    row = Row(0, start, (3,) * count, output=output, initial_state=InitialState(Sampling(), 4))
    with pytest.raises(OrderError, match="computed whole"):
        executor.forward(Plan(0, (row,)))


def test_a_norm_may_have_the_names_that_it_had_at_first(tmp_path: Path) -> None:
    path, (text,) = make_encoder(tmp_path, "bert"), texts([9], VOCAB)
    expected = run_whole(Executor(make_config(path), Group()), [[text]])
    tensors = load_file(path / "model.safetensors")
    save_file({name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
               for name, tensor in tensors.items()}, path / "model.safetensors")
    assert run_whole(Executor(make_config(path), Group()), [[text]]) == expected
