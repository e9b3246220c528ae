"""Vectors and scores without a server, by vLLM's names, beside those of sentence-transformers."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer

from penstock import LLM, PoolingParams
from tests.tiny_embedders import MOST, make_embedder, make_reranker

TEXTS = [" ".join(("water", "rome", "italy", "and")[: 1 + number % 4]) + f" {number} the" for number in range(40)]
LONG = "water " * (2 * MOST)


def model(path: Path) -> Iterator[tuple[LLM, str]]:
    with LLM(str(path), threads=1, max_num_seqs=8) as llm:
        yield llm, str(path)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LLM, str]]:
    yield from model(make_embedder(tmp_path_factory.mktemp("embedder")))


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LLM, str]]:
    yield from model(make_reranker(tmp_path_factory.mktemp("reranker")))


def test_vectors(embedder: tuple[LLM, str]) -> None:
    llm, path = embedder
    wanted = SentenceTransformer(path, device="cpu").encode(TEXTS)
    outputs = llm.embed(TEXTS, use_tqdm=False)
    for output, vector in zip(outputs, wanted, strict=True):
        assert output.outputs.embedding == pytest.approx(vector.tolist(), abs=1e-5)
        assert (output.finished, output.outputs.hidden_size) == (True, len(vector))
    ids = llm.get_tokenizer().encode(TEXTS[3])
    assert outputs[3].prompt_token_ids == ids
    [own] = llm.embed({"prompt_token_ids": ids}, use_tqdm=False)
    assert own.outputs == outputs[3].outputs
    [cut] = llm.embed(TEXTS[3], pooling_params=PoolingParams(dimensions=5, use_activation=False), use_tqdm=False)
    shown = outputs[3].outputs.embedding[:5]
    ratio = math.hypot(*cut.outputs.embedding) / math.hypot(*shown)
    assert cut.outputs.embedding == pytest.approx([ratio * number for number in shown], rel=1e-5, abs=1e-7)


def test_vectors_of_tokens(embedder: tuple[LLM, str]) -> None:
    llm, _ = embedder
    [vector] = llm.encode(TEXTS[0], use_tqdm=False)
    assert vector.outputs.data == llm.embed(TEXTS[0], use_tqdm=False)[0].outputs.embedding
    [tokens] = llm.encode(TEXTS[0], pooling_task="token_embed", use_tqdm=False)
    assert len(tokens.outputs.data) == len(tokens.prompt_token_ids)
    assert all(isinstance(each, list) and len(each) == len(vector.outputs.data) for each in tokens.outputs.data)


def test_ranks_and_scores_are_those_of_a_cross_encoder(reranker: tuple[LLM, str]) -> None:
    llm, path = reranker
    theirs = CrossEncoder(path, device="cpu").predict([("the water", text) for text in TEXTS])
    scores = [output.outputs.score for output in llm.score("the water", TEXTS)]
    assert scores == pytest.approx(theirs.tolist(), abs=5e-5)
    assert len({round(score, 5) for score in scores}) > len(TEXTS) // 2, "the scores tell nothing"
    assert sorted(range(len(TEXTS)), key=scores.__getitem__) == theirs.argsort(kind="stable").tolist()
    raw = llm.score(["the water"] * 2, TEXTS[:2], pooling_params=PoolingParams(use_activation=False))
    assert [1 / (1 + math.exp(-each.outputs.score)) for each in raw] == pytest.approx(scores[:2])
    [classes] = llm.classify(TEXTS[0], use_tqdm=False)
    assert (classes.outputs.num_classes, len(classes.outputs.probs)) == (1, 1)


def test_vectors_are_compared(embedder: tuple[LLM, str]) -> None:
    llm, path = embedder
    theirs = SentenceTransformer(path, device="cpu")
    wanted = theirs.similarity(theirs.encode(TEXTS[0]), theirs.encode(TEXTS))[0].tolist()
    assert [each.outputs.score for each in llm.score(TEXTS[0], TEXTS)] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(("call", "kind", "sentence"), [
    (lambda llm: llm.classify("a"), ValueError, "the model gives texts no scores; it has"),
    (lambda llm: llm.generate("a"), ValueError, "the model generates no text"),
    (lambda llm: llm.embed(""), ValueError, "`prompts` cannot be empty"),
    (lambda llm: llm.embed(LONG), ValueError, f"`prompts` must have less than {MOST} tokens"),
    (lambda llm: llm.embed("a", pooling_params=PoolingParams(dimensions=0)), ValueError, "`dimensions` must be > 0"),
    (lambda llm: llm.embed("a", pooling_params={"dimensions": 1}), TypeError, "pooling_params must be PoolingParams"),
    (lambda llm: llm.embed(["a", "b"], pooling_params=[PoolingParams()]), ValueError, "one for each of 2 prompts"),
    (lambda llm: llm.encode("a", pooling_task="plugin"), ValueError, "`pooling_task` must be one of embed"),
    (lambda llm: llm.score(["a", "b"], ["c"]), ValueError, "`data_1` must be one text, or as many as `data_2`"),
    (lambda llm: llm.score("a", [""]), TypeError, "`data_2` must be a text or a list of texts"),
    (lambda llm: llm.score("a", pooling_params=PoolingParams()), ValueError, "give `data_2`, too"),
])
def test_what_is_wrong_is_told_by_a_sentence(
    embedder: tuple[LLM, str], call: Any, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        call(embedder[0])


def test_a_long_text_is_cut_where_that_is_asked_for(embedder: tuple[LLM, str]) -> None:
    [cut] = embedder[0].embed(LONG, pooling_params=PoolingParams(truncate_prompt_tokens=-1), use_tqdm=False)
    assert len(cut.prompt_token_ids) == MOST


def test_a_model_that_generates_makes_no_vectors(llm: LLM) -> None:
    with pytest.raises(ValueError, match="the model makes no vectors of texts; it has /generate"):
        llm.embed("a", use_tqdm=False)
