"""Vectors and scores of encoders, beside those of sentence-transformers' modules and transformers' classes."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling as TheirPooling
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor

from penstock.checkpoints.sentence_modules import POOLINGS
from penstock.contract.pooling import Pooling, Task
from penstock.kernels.linear.tiled import has_tiles
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.execution.slots import OrderError
from penstock.shard.layers.encoder import Encoder
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.startup.measure import measure_step_tokens
from penstock.shard.weights.stored import CheckpointError
from tests.encoder_models import CLASSES, CONTEXT, MASKED, VOCAB, make_encoder, reference
from tests.sentence_models import add_modules, made_of
from tests.shard.pooled_texts import PLAIN, asked, numbers, on_ranks, run_pooled, their_states
from tests.shard.ranks import make_config

LENGTHS = (19, 3, 1, 64, 30)
WIDTH = 64
states_of = partial(their_states, reference)
NEAR = 1e-3 if has_tiles() else 1e-4     # in tiles a product is off by 2^-16 at most


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("model") / "bert", "bert")


def compare(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=NEAR, atol=NEAR)


@pytest.mark.parametrize("poolings", [*((name,) for name in POOLINGS), ("max", "cls", "mean")], ids="+".join)
@pytest.mark.parametrize("skipped", [0, 2])
def test_poolings(bert: Path, poolings: tuple[str, ...], skipped: int) -> None:
    modules = [TheirPooling(WIDTH, pooling_mode=poolings, include_prompt=False)]
    add_modules(bert, modules)
    executor = Executor(make_config(bert), Group())
    texts = asked(LENGTHS[:2], VOCAB, replace(PLAIN, skipped=skipped))
    for text, found in zip(texts, run_pooled(executor, texts, together=2), strict=True):
        compare(numbers(found), made_of(states_of(bert, text), modules, skipped))
    facts = describe(executor, 64).facts
    assert facts.tasks == {Task.EMBED, Task.EMBED_ALL}
    assert (facts.is_whole, facts.vector_size) == (True, WIDTH * len(poolings))
    assert (facts.pooling, facts.pools_last) == ("+".join(poolings), poolings == ("lasttoken",))


@pytest.mark.parametrize("activation", [torch.nn.Tanh(), torch.nn.Identity(), torch.nn.GELU(), torch.nn.SiLU(),
                                        torch.nn.ReLU(), torch.nn.Sigmoid()], ids=str)
def test_layers_behind_the_pooling(bert: Path, activation: Any) -> None:
    torch.manual_seed(0)
    layers = [Dense(WIDTH, 40, activation_function=activation), Normalize(),
              Dense(40, 24, bias=False, activation_function=activation)]
    modules = [TheirPooling(WIDTH, "mean"), *layers, Normalize()]
    add_modules(bert, modules)
    executor = Executor(make_config(bert), Group())
    assert describe(executor, 64).facts.vector_size == 24
    plain, scaled = (asked(LENGTHS[:2], VOCAB, replace(PLAIN, normalized=scales)) for scales in (False, True))
    for text, found in zip(plain, run_pooled(executor, plain), strict=True):
        compare(numbers(found), made_of(states_of(bert, text), modules[:-1]))
    for text, found in zip(scaled, run_pooled(executor, scaled), strict=True):
        compare(numbers(found), made_of(states_of(bert, text), modules))


def test_a_vector_is_cut_before_it_is_scaled(bert: Path) -> None:
    add_modules(bert, [TheirPooling(WIDTH, "cls")])
    executor = Executor(make_config(bert), Group())
    (whole,) = asked((9,), VOCAB)
    forms = [replace(whole, pooling=Pooling(Task.EMBED, dimensions=size, normalized=scales))
             for size in (0, 10, 64) for scales in (False, True)]
    vector = states_of(bert, whole)[0]
    for text, found in zip(forms, run_pooled(executor, forms, together=6), strict=True):
        expected = vector[:text.pooling.dimensions or WIDTH]
        compare(numbers(found), torch.nn.functional.normalize(expected, dim=0) if text.pooling.normalized else expected)
    with pytest.raises(OrderError, match="slot 0: 65 dimensions of a vector that has 64"):
        run_pooled(executor, [replace(whole, pooling=replace(PLAIN, dimensions=65))])


def test_every_token_has_a_vector(bert: Path) -> None:
    add_modules(bert, [TheirPooling(WIDTH, "mean")])
    (text,) = asked((9,), VOCAB, replace(PLAIN, task=Task.EMBED_ALL, skipped=2))
    (found,) = run_pooled(Executor(make_config(bert), Group()), [text])
    compare(numbers(found, WIDTH), states_of(bert, text)[2:])


def test_without_files_the_tokens_mean_is_taken_or_what_the_user_names(tmp_path: Path) -> None:
    path = make_encoder(tmp_path, "bert")
    (text,) = asked((9,), VOCAB)
    states = states_of(path, text)
    choices: list[tuple[Any, Tensor]] = [(None, states.mean(0)), ("cls", states[0]), ("last-token", states[-1])]
    for pooling, expected in choices:
        (found,) = run_pooled(Executor(replace(make_config(path), pooling=pooling), Group()), [text])
        compare(numbers(found), expected)


CLASSIFIERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bert, classes", {}), ("roberta, classes", {}), ("xlm-roberta", {}), ("distilbert, classes", {}),
    ("mpnet, classes", {}), ("nomic", {}), ("gte, types, classes", {}), ("deberta", {}),
    ("modernbert", {"classifier_bias": True}),
    ("modernbert, biases", {"classifier_pooling": "mean"}), ("eurobert", {"classifier_pooling": "late"}),
    ("eurobert", {"classifier_pooling": "bos"}), ("eurobert", {"classifier_pooling": "mean"}))
MASKED_MODELS = ("bert, tanh, masked", "camembert", "distilbert", "mpnet", "modernbert", "eurobert", "nomic", "gte")


@pytest.mark.parametrize(("name", "keys"), CLASSIFIERS, ids=str)
@torch.no_grad()
def test_classifiers(tmp_path: Path, name: str, keys: dict[str, Any]) -> None:
    from transformers import AutoModelForSequenceClassification

    labels = {0: "bad", 1: "fair", 2: "good"}
    path = make_encoder(tmp_path, name, saved_by=CLASSES, id2label=labels,
                        label2id={label: number for number, label in labels.items()}, **keys)
    executor = Executor(make_config(path), Group())
    texts = asked(LENGTHS, VOCAB, Pooling(Task.CLASSIFY))
    model = AutoModelForSequenceClassification.from_pretrained(path, attn_implementation="eager").eval()
    for text, found in zip(texts, run_pooled(executor, texts, together=5), strict=True):
        compare(numbers(found), model(torch.tensor([text.ids])).logits[0])
    facts = describe(executor, 64).facts
    assert facts.tasks == {Task.CLASSIFY}
    assert (facts.labels, facts.activation, facts.vector_size) == (("bad", "fair", "good"), "softmax", 0)


@pytest.mark.parametrize(("name", "strategy", "activation"), [
    *((name, "max", "relu") for name in MASKED_MODELS), ("bert, tanh, masked", "sum", "relu"),
    ("bert, tanh, masked", "max", "log1p_relu"), ("bert, tanh, masked", "sum", "log1p_relu")])
@torch.no_grad()
def test_sparse_vectors(tmp_path: Path, name: str, strategy: Any, activation: Any) -> None:
    from transformers import AutoModelForMaskedLM

    path, pooling = make_encoder(tmp_path, name, saved_by=MASKED), SpladePooling(strategy, activation)
    add_modules(path, [pooling])
    executor = Executor(make_config(path), Group())
    texts = asked((*LENGTHS[:3], CONTEXT - 3), VOCAB, Pooling(Task.EMBED_SPARSE))
    model = AutoModelForMaskedLM.from_pretrained(path, attn_implementation="eager").eval()
    for text, found in zip(texts, run_pooled(executor, texts, together=4), strict=True):
        expected = made_of(model(torch.tensor([text.ids])).logits[0], [pooling])
        count = len(found) // 8
        indices = np.frombuffer(found[:4 * count], "<u4").astype(np.int64)
        assert indices.tolist() == expected.nonzero()[:, 0].tolist()
        compare(numbers(found[4 * count:]), expected[torch.from_numpy(indices)])
    facts = describe(executor, 64).facts
    assert facts.tasks == {Task.EMBED_SPARSE}
    assert (facts.vector_size, facts.pooling) == (VOCAB, "splade")


@pytest.mark.parametrize(("dtype", "is_shared"), [("float32", True), ("bfloat16", False)])
def test_a_tied_head_is_read_once(tmp_path: Path, dtype: str, is_shared: bool) -> None:
    path = make_encoder(tmp_path, "bert, tanh, masked", saved_by=MASKED)
    add_modules(path, [SpladePooling()])
    executor = Executor(make_config(path, dtype), Group())
    assert isinstance(executor.model, Encoder)
    assert executor.pooler is not None
    assert executor.pooler.sparse is not None
    assert (executor.pooler.sparse._weight is executor.model.vocabulary) == is_shared


@pytest.mark.parametrize(("name", "task"), [
    ("bert", Task.EMBED), ("roberta, classes", Task.CLASSIFY), ("camembert", Task.EMBED_SPARSE)])
def test_bits_are_the_same_alone_batched_and_on_shards(tmp_path: Path, name: str, task: Task) -> None:
    path = make_encoder(tmp_path / "model", name)
    if task is Task.EMBED:
        torch.manual_seed(0)
        add_modules(path, [TheirPooling(WIDTH, ("mean", "weightedmean")), Dense(2 * WIDTH, 23)])
    elif task is Task.EMBED_SPARSE:
        add_modules(path, [SpladePooling()])
    config, texts = make_config(path, "bfloat16"), asked(LENGTHS, VOCAB, Pooling(task))
    alone = run_pooled(Executor(config, Group()), texts)
    assert len({*alone}) == len(texts)
    assert run_pooled(Executor(config, Group()), texts[::-1], together=5) == alone[::-1]
    assert on_ranks(config, texts, tmp_path, 2) == alone


@pytest.mark.parametrize(("files", "settings", "said"), [
    ({}, {"task": "generate"}, "architectures: expected one that continues texts, for --task generate"),
    ({}, {"task": "classify"}, "architectures: expected one with a head that scores texts: BertForSequenceClassif"),
    ({}, {"pooling": "splade"}, "architectures: expected one that says what masked tokens are, for sparse vectors"),
    ({"modules.json": "["}, {}, "modules.json: it is not JSON"),
])
def test_a_model_of_another_kind_is_refused(
    tmp_path: Path, files: dict[str, str], settings: dict[str, Any], said: str
) -> None:
    path = make_encoder(tmp_path, "bert")
    for name, content in files.items():
        (path / name).write_text(content)
    with pytest.raises(ModelConfigError, match=said.replace("[", r"\[")):
        Executor(replace(make_config(path), **settings), Group())


@pytest.mark.parametrize(("name", "kind", "keys", "said"), [
    ("modernbert", CLASSES, {"classifier_activation": "warm"}, "classifier_activation: expected one of tanh, silu"),
    ("modernbert", CLASSES, {"classifier_pooling": 3}, "classifier_pooling: expected cls or mean, found 3"),
    ("eurobert", CLASSES, {"classifier_pooling": "early"}, "classifier_pooling: expected bos, mean or late"),
    ("bert", CLASSES, {"id2label": ["good"]}, "id2label: expected an object of texts"),
    ("bert", CLASSES, {"id2label": {"0": "good", "2": "bad"}}, "id2label: expected the numbers from 0 to 1"),
    ("bert", CLASSES, {"id2label": {}}, "id2label: expected a label at least"),
    ("bert", CLASSES, {"id2label": None, "num_labels": 0}, "num_labels: expected a whole number of at least 1"),
    ("bert", CLASSES, {"sbert_ce_default_activation_function": "x.Y"}, "expected a class of torch, one of identity"),
])
def test_heads_that_make_no_sense_are_refused(
    tmp_path: Path, name: str, kind: str, keys: dict[str, Any], said: str
) -> None:
    path = make_encoder(tmp_path, name, saved_by=kind)
    config = path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_bytes()) | keys))
    with pytest.raises(ModelConfigError, match=said):
        Executor(make_config(path), Group())


def test_a_reranker_has_one_label(tmp_path: Path) -> None:
    path = make_encoder(tmp_path / "three", "bert, classes", num_labels=3)
    with pytest.raises(ModelConfigError, match="--task rerank: the model has 3 labels, and ranks are made of one"):
        Executor(replace(make_config(path), task="rerank"), Group())
    path = make_encoder(tmp_path / "one", "bert, classes", num_labels=1)
    facts = describe(Executor(replace(make_config(path), task="rerank"), Group()), 64).facts
    assert (facts.labels, facts.activation) == (("LABEL_0",), "sigmoid")


def test_each_part_has_a_name_of_its_own(tmp_path: Path) -> None:
    """A change of pooling, layers, or a bit of their weights is another name of bits."""
    names = []
    path = make_encoder(tmp_path, "bert")
    torch.manual_seed(0)
    dense = Dense(WIDTH, 8)
    for modules in ([TheirPooling(WIDTH, "mean")], [TheirPooling(WIDTH, "cls")], [TheirPooling(WIDTH, "mean"), dense],
                    [TheirPooling(WIDTH, "mean"), Dense(WIDTH, 8, activation_function=torch.nn.ReLU())],
                    [TheirPooling(WIDTH, "mean"), Normalize(), dense]):
        names.append(describe(Executor(make_config(add_modules(path, modules)), Group()), 64).facts.model)
    with torch.no_grad():
        dense.linear.weight[0, 0] += 1e-6
    names.append(describe(Executor(make_config(add_modules(path, modules)), Group()), 64).facts.model)
    assert len({*names}) == 6


@pytest.mark.parametrize("name", ["bert", "bert, classes", "camembert"])
def test_weights_that_are_no_numbers_end_the_start(tmp_path: Path, name: str) -> None:
    path = make_encoder(tmp_path, name)
    weights = load_file(path / "model.safetensors")
    embedding = next(weight for name, weight in weights.items() if "word_embeddings" in name)
    embedding[5] = torch.nan
    save_file(weights, path / "model.safetensors")
    if name == "camembert":
        add_modules(path, [SpladePooling()])
    with pytest.raises(CheckpointError, match="computes something that is not a number"):
        measure_step_tokens(Executor(make_config(path), Group()), Group(), most=16)
