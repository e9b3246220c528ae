"""How rows may be sampled, for the benchmarks of sampling."""

from collections.abc import Mapping, Sequence

import torch

from penstock.kernels.sample import SampleParameters
from penstock.kernels.sample.parameters import COLUMNS, PARAMETERS

CASES: dict[str, Mapping[str, float]] = {
    "greedy": {"do_sample": False},
    "plain": {},
    "temperature 0.8, top-p 0.95": {"temperature": 0.8, "top_p": 0.95},
    "top-k 50": {"top_k": 50},
    "temperature 0.8, top-k 50, top-p 0.95": {"temperature": 0.8, "top_k": 50, "top_p": 0.95},
    "typical-p 0.95": {"typical_p": 0.95},
    "min-p 0.05": {"min_p": 0.05},
    "greedy, repetition penalty": {"do_sample": False, "repetition_penalty": 1.2},
    "greedy, presence penalty": {"do_sample": False, "presence_penalty": 0.5, "prompt_length": 250},
    "greedy by log-probabilities, repetition penalty, 16 likeliest": {
        "do_sample": False, "of_logprobs": True, "repetition_penalty": 1.2, "top_n": 16},
    "greedy, mask of half the tokens": {"do_sample": False, "mask": 0},
    "plain, mask of half the tokens": {"mask": 0},
    "greedy, 5 likeliest": {"do_sample": False, "top_n": 5},
    "plain, 5 likeliest": {"top_n": 5},
}
DEFAULTS = {
    "prompt_length": 0, "mask": -1, "position": 7, **{each.name: each.off for each in PARAMETERS}, "do_sample": True}


def parameters(rows: Sequence[Mapping[str, float]]) -> SampleParameters:
    """Returns the columns of rows that are a case each, with seeds of their own."""
    columns = {name: torch.tensor([row.get(name, DEFAULTS[name]) for row in rows], dtype=dtype)
               for name, dtype in COLUMNS.items()}
    columns["seed"] = torch.arange(len(rows))
    return SampleParameters(**columns)
