"""Vectors and scores of decoders, beside those of transformers, and bits that depend on the text alone."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Pooling as TheirPooling
from torch import Tensor

from penstock.checkpoints.sentence_modules import POOLINGS
from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.pooling import POOLING, Pooling, Task
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.execution.slots import OrderError
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.startup.measure import measure_step_tokens
from tests.adapter_files import make_adapter, merged_weights
from tests.embedder_models import CLASSES, FAMILIES, VOCAB, WIDTH, make_embedder, reference
from tests.family_models import make_family
from tests.sentence_models import add_modules, made_of
from tests.shard.pooled_texts import PLAIN, Asked, asked, numbers, on_ranks, run_pooled, their_states
from tests.shard.ranks import make_config
from tests.tiny_models import make_tiny

LENGTHS = (19, 3, 1, 70, 30)
SCORED = Pooling(Task.CLASSIFY)
CAUSAL = "AutoModelForCausalLM"
states_of = partial(their_states, reference)


def compare(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_family(tmp_path_factory.mktemp("model"), "llama")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_last_token_s_vector_is_that_of_transformers(tmp_path: Path, name: str) -> None:
    path = make_embedder(tmp_path, name)
    executor = Executor(make_config(path), Group())
    texts = asked(LENGTHS, VOCAB)
    for text, found in zip(texts, run_pooled(executor, texts, together=5), strict=True):
        compare(numbers(found), states_of(path, text)[-1])
    assert measure_step_tokens(executor, Group(), most=32) == 32
    facts = describe(executor, 64).facts
    assert facts.tasks == {Task.EMBED, Task.EMBED_ALL}
    assert (facts.is_whole, facts.pools_last, facts.pooling, facts.vector_size) == (False, True, "lasttoken", WIDTH)
    assert (facts.token_vector_size, facts.pad_token_ids) == (WIDTH, frozenset())


@pytest.mark.parametrize("chunk", [7, 512])
@pytest.mark.parametrize("poolings", [*((name,) for name in POOLINGS), ("max", "lasttoken", "mean")], ids="+".join)
def test_poolings_of_chunks(llama: Path, poolings: tuple[str, ...], chunk: int) -> None:
    """Prompts of a quarter of a block are skipped."""
    modules = [TheirPooling(WIDTH, pooling_mode=poolings, include_prompt=False)]
    path = add_modules(llama, modules)
    texts = asked((30, 19), VOCAB, replace(PLAIN, skipped=9))
    for text, found in zip(texts, run_pooled(Executor(make_config(path), Group()), texts, chunk, 2), strict=True):
        compare(numbers(found), made_of(states_of(path, text), modules, 9))


def test_every_token_has_a_vector(tmp_path: Path) -> None:
    path = make_embedder(tmp_path, "llama")
    (text,) = asked((30,), VOCAB, replace(PLAIN, task=Task.EMBED_ALL, skipped=9))
    whole, chunks = (run_pooled(Executor(make_config(path), Group()), [text], chunk)[0] for chunk in (512, 7))
    compare(numbers(whole, WIDTH), states_of(path, text)[9:])
    assert chunks == whole


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_classifiers(tmp_path: Path, name: str) -> None:
    path = make_embedder(tmp_path, name, CLASSES, num_labels=3)
    executor = Executor(make_config(path), Group())
    texts = asked(LENGTHS, VOCAB, SCORED)
    model = reference(path, CLASSES)
    for text, found in zip(texts, run_pooled(executor, texts, together=5), strict=True):
        compare(numbers(found), model.score(model.model(torch.tensor([text.ids])).last_hidden_state[0, -1]))
    facts = describe(executor, 64).facts
    assert facts.tasks == {Task.CLASSIFY}
    assert (facts.labels, facts.activation) == (("LABEL_0", "LABEL_1", "LABEL_2"), "softmax")


@torch.no_grad()
def test_tokens_that_fill_a_text_up_are_told_for_no_text_is_scored_by_them(tmp_path: Path) -> None:
    path = make_embedder(tmp_path, "llama", CLASSES, num_labels=2, pad_token_id=3)
    executor = Executor(make_config(path), Group())
    [text] = asked((19,), VOCAB, SCORED)
    [found] = run_pooled(executor, [text])
    compare(numbers(found), reference(path, CLASSES)(torch.tensor([[*text.ids, 3, 3]])).logits[0])
    assert describe(executor, 64).facts.pad_token_ids == {3}


@pytest.mark.parametrize("keys", [
    {}, {"tie_word_embeddings": True}, {"final_logit_softcapping": 3.0}], ids=["plain", "tied", "capped"])
@pytest.mark.parametrize("source", ["tokenizer", "config", "modules"])
@torch.no_grad()
def test_answers_score_texts(tmp_path: Path, source: str, keys: dict[str, Any]) -> None:
    """Qwen3-Reranker's way: the share of yes among yes and no."""
    path = make_family(tmp_path / "model", "gemma2" if "final_logit_softcapping" in keys else "qwen3, window, biases",
                       **keys)
    vocab = {"a": 1, "no": 7, "yes": 9, "-": 12, "+": 11}
    (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}))
    yes, no = (11, 12) if source == "config" else (9, 7)
    if source == "config":
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"classifier_from_token": ["-", "+"]}))
    elif source == "modules":
        from sentence_transformers.cross_encoder.modules import LogitScore

        add_modules(path, [LogitScore(true_token_id=9, false_token_id=7)])
    executor = Executor(replace(make_config(path), task="auto" if source == "modules" else "rerank"), Group())
    texts, model = asked(LENGTHS, VOCAB, SCORED), reference(path, CAUSAL)
    for text, found in zip(texts, run_pooled(executor, texts, together=5), strict=True):
        logits = model(torch.tensor([text.ids])).logits[0, -1]
        shares = logits[[no, yes]].softmax(0)
        compare(numbers(found).sigmoid(), shares[1:])
    facts = describe(executor, 64).facts
    assert facts.tasks == {Task.CLASSIFY}
    assert (len(facts.labels), facts.activation, facts.pools_last) == (1, "sigmoid", True)


def test_a_reranker_without_answers_is_refused(tmp_path: Path) -> None:
    path = make_family(tmp_path, "llama")
    config = replace(make_config(path), task="rerank")
    with pytest.raises(ModelConfigError, match=r"tokenizer.json: --task rerank needs the numbers of the tokens"):
        Executor(config, Group())
    (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"ja": 3, "nein": 4}}}))
    with pytest.raises(ModelConfigError, match="there are no tokens that say yes and no"):
        Executor(config, Group())


@pytest.mark.parametrize(("name", "key"), [
    ("gemma3", {"use_bidirectional_attention": True}), ("qwen2, window", {"is_causal": False}),
    ("llama", {"is_causal": False})], ids=["gemma3", "qwen2, window", "llama"])
def test_decoders_whose_tokens_see_those_behind_them(tmp_path: Path, name: str, key: dict[str, Any]) -> None:
    path = make_embedder(tmp_path, name, **key)
    executor = Executor(make_config(path), Group())
    texts = asked((*LENGTHS, 200), VOCAB)
    alone = run_pooled(executor, texts)
    for text, found in zip(texts, alone, strict=True):
        compare(numbers(found), states_of(path, text).mean(0))
    assert run_pooled(executor, texts[::-1], together=6) == alone[::-1]
    facts = describe(executor, 64).facts
    assert (facts.is_whole, facts.num_blocks, facts.pooling) == (True, 0, "mean")


def test_what_cannot_see_both_ways_is_refused(tmp_path: Path) -> None:
    path = make_embedder(tmp_path, "gemma2", is_causal=False)
    with pytest.raises(ModelConfigError, match=r"is_causal: expected true, .* attention with a cap of its scores"):
        Executor(make_config(path), Group())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("poolings", [("lasttoken",), ("mean", "max", "weightedmean", "cls")], ids="+".join)
def test_bits_are_the_same_alone_batched_and_in_chunks(
    tmp_path: Path, poolings: tuple[str, ...], dtype: str
) -> None:
    path = add_modules(make_family(tmp_path, "llama"), [TheirPooling(WIDTH, poolings)])
    executor = Executor(make_config(path, dtype), Group())
    texts = asked(LENGTHS, VOCAB, Pooling(Task.EMBED, dimensions=40))
    alone = run_pooled(executor, texts)
    assert len({*alone}) == len(texts)
    assert run_pooled(executor, texts[::-1], together=5) == alone[::-1]
    for chunk in (1, 3, 16, 17):
        assert run_pooled(executor, texts, chunk, together=5) == alone


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["last", "mean", "scores", pytest.param("answers", marks=pytest.mark.slow),
                                  pytest.param("both ways", marks=pytest.mark.slow)])
def test_bits_are_the_same_on_shards(tmp_path: Path, kind: str, world_size: int) -> None:
    model, task = tmp_path / "model", Task.CLASSIFY if kind in ("scores", "answers") else Task.EMBED
    keys: dict[str, Any] = {}
    if kind == "scores":
        make_embedder(model, "llama", CLASSES)
    elif kind == "both ways":
        make_embedder(model, "gemma3", use_bidirectional_attention=True)
    elif kind == "answers":
        make_family(model, "llama", classifier_from_token=["no", "yes"])
        (model / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"yes": 3, "no": 4}}}))
        keys = {"task": "rerank"}
    else:
        make_embedder(model, "llama")
        keys = {"pooling": "mean"} if kind == "mean" else {}
    config, texts = replace(make_config(model, "bfloat16"), **keys), asked(LENGTHS, VOCAB, Pooling(task))
    assert on_ranks(config, texts, tmp_path, world_size) == run_pooled(Executor(config, Group()), texts)


@pytest.mark.slow
def test_bits_are_the_same_on_stages(tmp_path: Path) -> None:
    config = make_config(make_embedder(tmp_path / "model", "llama"), "bfloat16")
    texts = asked(LENGTHS, VOCAB, Pooling(Task.EMBED))
    staged = replace(config, pipeline_parallel_size=2)
    assert on_ranks(staged, texts, tmp_path, 2) == run_pooled(Executor(config, Group()), texts)


def test_any_decoder_makes_vectors_where_it_is_asked_to(tmp_path: Path) -> None:
    path = make_family(tmp_path, "gpt_neox")
    (text,) = asked((19,), VOCAB)
    executor = Executor(replace(make_config(path), task="embed"), Group())
    compare(numbers(run_pooled(executor, [text])[0]), states_of(path, text)[-1])
    facts = describe(Executor(make_config(path), Group()), 64).facts
    assert (facts.tasks, facts.vector_size) == (frozenset({Task.GENERATE}), 0)


@torch.no_grad()
def test_adapters_of_embedders(tmp_path: Path) -> None:
    """Each text has its own adapter's vector, with the bits that it has alone."""
    path = make_tiny(tmp_path / "model", heads=8, kv_heads=4)
    folders = {number: make_adapter(tmp_path / str(number), path, seed=number) for number in (1, 2)}
    executor = Executor(replace(make_config(path), task="embed", adapter_memory=1 << 24), Group())
    for number, folder in folders.items():
        executor.adapters.load(number, folder).result()
    texts = [replace(text, adapter=number) for number, text in zip((0, 1, 2, 1, 2), asked(LENGTHS, VOCAB), strict=True)]
    alone = run_pooled(executor, texts)
    assert run_pooled(executor, texts, 16, together=5) == alone
    for text, found in zip(texts, alone, strict=True):
        model = reference(path, CAUSAL)
        for name, delta in (merged_weights(path, folders[text.adapter]) if text.adapter else {}).items():
            model.get_submodule(name).weight += delta.float()
        compare(numbers(found), model.model(torch.tensor([text.ids])).last_hidden_state[0, -1])


def begun_behind(executor: Executor, text: Asked, start: int) -> bytes:
    """Returns what is made of a text whose first tokens another slot has computed."""
    executor.open(StreamLimits(max_slots=2, max_step_tokens=64, max_blocks_per_slot=2))
    state = InitialState(Sampling(), len(text.ids), side_inputs={POOLING: text.pooling.encode()})
    for slot, begin in ((0, 0), (1, start)):
        result = executor.execute(Plan(slot, (Row(
            slot, begin, text.ids[begin:], new_blocks=(0, slot + 1), output=Output.POOL, initial_state=state),)))
    return result.rows[0].others[0].value


def test_a_text_may_begin_with_blocks_of_another_where_the_last_token_is_pooled(tmp_path: Path) -> None:
    path, (text,) = make_embedder(tmp_path, "llama"), asked((30,), VOCAB)
    executor = Executor(make_config(path), Group())
    assert [begun_behind(executor, text, 16)] == run_pooled(executor, [text])
    with pytest.raises(OrderError, match="slot 1: start 16, but the vectors of its tokens are read in their order, and "
                                         "have come to position 0"):
        begun_behind(Executor(replace(make_config(path), pooling="mean"), Group()), text, 16)


def test_orders_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    config, (text,) = make_config(make_family(tmp_path, "llama")), asked((9,), VOCAB)
    with pytest.raises(OrderError, match="slot 0: the task classify, and the model's are embed, embed_all"):
        run_pooled(Executor(replace(config, task="embed"), Group()), [replace(text, pooling=SCORED)])
    with pytest.raises(OrderError, match="slot 0: a row that yields POOL, of a model that makes tokens"):
        run_pooled(Executor(config, Group()), [text])
