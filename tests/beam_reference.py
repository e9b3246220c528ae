"""Beam searches of transformers on the demo model, in float32, and what a server is asked for to have the same."""

from functools import cache
from typing import Any, NamedTuple

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from tests.paths import DEMO_MODEL

PADDING = 1


class Found(NamedTuple):
    """An answer's tokens, without those that pad it, and its score."""

    tokens: list[int]
    score: float


@cache
def model() -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(DEMO_MODEL, dtype=torch.float32).eval()


@cache
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(DEMO_MODEL)


@torch.inference_mode()
def transformers_answers(prompt: list[int], num_beams: int, max_new_tokens: int, **options: Any) -> list[Found]:
    """What transformers finds. `options` are those of `generate`."""
    settings = {"eos_token_id": 2, **options}
    if "stop_strings" in settings:
        settings["tokenizer"] = tokenizer()
    found = model().generate(
        torch.tensor([prompt]), num_beams=num_beams, max_new_tokens=max_new_tokens, do_sample=False,
        pad_token_id=PADDING, return_dict_in_generate=True, output_scores=True, **settings)
    answers = []
    for row, score in zip(found.sequences.tolist(), found.sequences_scores.tolist(), strict=True):
        tokens = row[len(prompt):]
        while tokens and tokens[-1] == PADDING:
            tokens.pop()
        answers.append(Found(tokens, score))
    return answers
