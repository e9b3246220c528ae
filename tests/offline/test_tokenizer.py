"""The tokenizer of a model, as transformers has it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock import LLM, SamplingParams
from penstock.offline.tokenizer import ModelTokenizer


def test_the_mark_that_ends_an_answer(llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    assert tokenizer.eos_token_id in tokenizer.eos_token_ids


@pytest.mark.parametrize(("marks", "expected"), [
    ({"eos_token": "<|im_end|>"}, 5), ({"eos_token": "other"}, 3), ({}, 3)])
def test_of_several_the_tokenizer_s_own_mark_is_first(marks: dict[str, str], expected: int) -> None:
    service = SimpleNamespace(
        facts=SimpleNamespace(eos_token_ids=frozenset({3, 5, 9})),
        tokenizer=SimpleNamespace(special_id={"<|im_end|>": 5}.get), template=SimpleNamespace(special_tokens=marks))
    assert ModelTokenizer(cast(Any, service), cast(Any, None)).eos_token_id == expected


def test_a_prompt_is_cut_to_its_last_tokens(llm: LLM) -> None:
    ids = llm.get_tokenizer().encode("def add(first, second):")
    params = [SamplingParams(temperature=0, max_tokens=8, truncate_prompt_tokens=most) for most in (3, None)]
    cut, short = llm.generate([ids, ids[-3:]], params, use_tqdm=False)
    assert cut.prompt_token_ids == ids[-3:]
    assert cut.outputs == short.outputs


def test_token_ids_that_have_a_text(llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    [first, *_] = tokenizer.encode("def", add_special_tokens=False)
    assert tokenizer.decode(first) == tokenizer.decode([first])
    for wrong in (-1, 1 << 32):
        with pytest.raises(ValueError, match=f"`token_ids` must have numbers from 0 to 4294967295. Given: {wrong}"):
            tokenizer.decode([wrong])


def test_no_conversation_has_no_answer(llm: LLM) -> None:
    assert llm.chat([], use_tqdm=False) == llm.generate([], use_tqdm=False) == []
