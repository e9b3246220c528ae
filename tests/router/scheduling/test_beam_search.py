"""Holds the beam search against transformers' own, on logits of the same model."""

import random
from functools import cache
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from penstock.contract.row_result import TopLogprobs
from penstock.router.scheduling.beam_search import BeamSearch, BeamSettings, Candidate, ways_on
from penstock.router.scheduling.finish_reason import FinishReason

VOCABULARY, PADDING = 40, 39
PENALTIES = (-1.0, 0.0, 0.5, 1.0, 2.0)


@cache
def model() -> LlamaForCausalLM:
    """Returns a model whose next tokens depend on all before, with few that are likely."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, pad_token_id=PADDING, bos_token_id=None, eos_token_id=None, initializer_range=0.5)
    return LlamaForCausalLM(config).eval()


@torch.inference_mode()
def top_logprobs(tokens: list[int], number: int) -> TopLogprobs:
    logprobs = model()(torch.tensor([tokens])).logits[0, -1].float().log_softmax(-1)
    return tuple(zip(*(column.tolist() for column in reversed(logprobs.topk(min(number, VOCABULARY)))), strict=True))


def search(
    prompt: list[int], settings: BeamSettings, max_new_tokens: int, eos_token_ids: list[int]
) -> list[tuple[list[int], float]]:
    beams = BeamSearch(settings, max_new_tokens, len(eos_token_ids))
    texts: list[list[int]] = [[]]
    while beams.beams:
        candidates = beams.choose([top_logprobs(prompt + text, beams.num_candidates) for text in texts])
        reasons = [FinishReason.LENGTH if beams.length + 1 == max_new_tokens
                   else FinishReason.EOS_TOKEN if each.token_id in eos_token_ids else None for each in candidates]
        texts = [[*texts[each.beam], each.token_id] for each in beams.advance(candidates, reasons)]
    return [([*each.token_ids], each.score) for each in beams.answers]


def cases(number: int) -> list[dict[str, Any]]:
    """Every length penalty with every form of early stopping, and all else at random."""
    draw, made = random.Random(1), []
    for place in range(number):
        num_beams = draw.randint(2, 5)
        made.append({
            "prompt": draw.sample(range(PADDING), draw.randint(1, 6)),
            "settings": BeamSettings(
                num_beams, draw.randint(1, num_beams), PENALTIES[place % 5], (False, True, "never")[place % 3]),
            "max_new_tokens": draw.randint(1, 16),
            "eos_token_ids": draw.sample(range(PADDING), draw.randint(1, 3))})
    return made


def test_tokens_and_scores_are_those_of_transformers(every_case: bool) -> None:
    num_cases, num_early = 200 if every_case else 15, 0
    for case in cases(num_cases):
        settings: BeamSettings = case["settings"]
        expected = model().generate(
            torch.tensor([case["prompt"]]), num_beams=settings.num_beams, num_return_sequences=settings.num_answers,
            length_penalty=settings.length_penalty, early_stopping=settings.early_stopping, do_sample=False,
            max_new_tokens=case["max_new_tokens"], eos_token_id=case["eos_token_ids"], return_dict_in_generate=True,
            output_scores=True)
        found = search(**case)
        assert len(found) == settings.num_answers
        for (tokens, score), row, its_score in zip(
                found, expected.sequences.tolist(), expected.sequences_scores.tolist(), strict=True):
            its_tokens = row[len(case["prompt"]):]
            assert tokens == its_tokens[:len(tokens)], case
            assert set(its_tokens[len(tokens):]) <= {PADDING}, case
            assert score == pytest.approx(its_score, abs=1e-4, rel=3e-6), case
            num_early += len(tokens) < case["max_new_tokens"]
    assert num_early > num_cases // 4, "hardly an answer ended by itself"


def test_a_search_of_which_nothing_can_go_on_returns_what_it_has_found() -> None:
    beams = BeamSearch(BeamSettings(2, 2), max_new_tokens=8, num_end_tokens=1)
    candidates = beams.choose([((7, -0.5),)])
    assert beams.advance(candidates, [FinishReason.EOS_TOKEN]) == []
    assert [each.score for each in beams.answers] == [-0.5]


def test_equal_candidates_come_by_their_beams() -> None:
    beams = BeamSearch(BeamSettings(2), max_new_tokens=8, num_end_tokens=1)
    beams.advance(beams.choose([((7, -0.5), (5, -0.5))]), [None, None])
    tops: list[TopLogprobs] = [((9, -1.0), (3, -2.0)), ((4, -1.0), (6, -1.0), (2, -3.0))]
    assert [(each.beam, each.token_id) for each in beams.choose(tops)] == [(0, 9), (1, 4), (1, 6), (0, 3)]


def test_the_best_of_a_beam_goes_on_in_its_place_and_others_are_forks() -> None:
    going = [Candidate(beam, token_id, -0.5, -1.0) for beam, token_id in ((2, 7), (0, 8), (2, 9))]
    assert ways_on(going, 4) == ([1, 3], [(going[0], False), (going[1], False), (going[2], True)])
    assert ways_on([], 2) == ([0, 1], [])
