"""Answers and logprobs beside transformers' own, on the demo model."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from penstock import LLM, SamplingParams
from tests import beam_reference
from tests.paths import DEMO_MODEL

PROMPTS = ["def add(a, b):", "The value of", "for each in range(", "import os\n"]


def greedy(llm: LLM, prompts: Sequence[str], **fields: Any) -> list[list[int]]:
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, **fields)
    return [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)]


@torch.inference_mode()
def transformers_greedy(prompt: list[int], **fields: Any) -> list[int]:
    found = beam_reference.model().generate(
        torch.tensor([prompt]), max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=1, eos_token_id=2,
        **fields)
    ids: list[int] = found[0].tolist()
    return ids[len(prompt):]


@pytest.mark.parametrize("prompt", [PROMPTS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in PROMPTS[1:])])
def test_bad_words_are_avoided_as_transformers_avoids_them(llm: LLM, prompt: str) -> None:
    """Words of what would be said without them, one and two tokens long, and of what is said instead. None begins in
    the prompt, of which transformers would count the end."""
    tokenizer, [plain] = llm.get_tokenizer(), greedy(llm, [prompt])
    words = [tokenizer.decode(plain[start:start + 2]) for start in (1, 4)] + [tokenizer.decode(plain[7:8])]
    words = [word for word in words if word.strip()]
    ids = llm.get_tokenizer().encode(prompt)
    spellings = []
    for word in words:
        bare = word.lstrip()
        first, later = (tokenizer.encode(text, add_special_tokens=False) for text in (bare, f" {bare}"))
        spellings += [first, later] if len(first) == len(later) and first[0] != later[0] else [first]
    [found] = greedy(llm, [prompt], bad_words=words)
    assert found == transformers_greedy(ids, bad_words_ids=spellings)
    assert found != plain
    together = greedy(llm, [prompt, *PROMPTS, prompt], bad_words=words)
    assert together[0] == together[-1] == found


@pytest.mark.parametrize("prompt", [PROMPTS[0], pytest.param(PROMPTS[1], marks=pytest.mark.slow)])
def test_allowed_tokens_are_the_only_ones(llm: LLM, prompt: str) -> None:
    ids, allowed = llm.get_tokenizer().encode(prompt), [5, *range(40, 900, 7)]
    [found] = greedy(llm, [prompt], allowed_token_ids=allowed)
    assert {*found} <= {*allowed}
    others = [token for token in range(beam_reference.model().config.vocab_size) if token not in allowed]
    assert found == transformers_greedy(ids, suppress_tokens=others)


@torch.inference_mode()
def test_logprobs_and_ranks_of_a_prompt(llm: LLM) -> None:
    for prompt in PROMPTS:
        [output] = llm.generate(prompt, SamplingParams(max_tokens=1, prompt_logprobs=2), use_tqdm=False)
        ids = output.prompt_token_ids
        logits = beam_reference.model()(torch.tensor([ids])).logits[0].float()
        logprobs = logits.log_softmax(dim=1)
        assert output.prompt_logprobs is not None
        for place, (token_id, each) in enumerate(zip(ids[1:], output.prompt_logprobs[1:], strict=True)):
            assert each is not None
            assert each[token_id].logprob == pytest.approx(float(logprobs[place, token_id]), abs=0.05)
            rank, order = each[token_id].rank, logits[place].argsort(descending=True).tolist()
            assert rank is not None
            # Numbers that differ in their last bits may stand in another order.
            assert abs(rank - 1 - order.index(token_id)) <= max(1, rank // 20)


@pytest.mark.slow
def test_guesses_change_nothing_of_what_is_banned(llm: LLM) -> None:
    """Where the text repeats itself, so that guesses are taken from it, and some of them are banned."""
    prompts = ["one two three four one two three four one two", *PROMPTS]
    fields: dict[str, Any] = {"bad_words": ["three", "two three", "(self", ")"]}
    with LLM(str(DEMO_MODEL), max_num_seqs=8, kv_memory="16MiB", threads=1, speculate=4) as guessing:
        for banned in (fields, {"allowed_token_ids": (*range(3, 400),)}):
            drawn = [SamplingParams(max_tokens=24, ignore_eos=True, seed=number, temperature=temperature, **banned)
                     for number, temperature in enumerate([0, 0, 0.5, 1, 1])]
            outputs = [each.generate(prompts, drawn, use_tqdm=False) for each in (llm, guessing)]
            assert len({tuple(tuple(output.outputs[0].token_ids) for output in each) for each in outputs}) == 1
