"""How rows may be sampled, for the benchmarks of sampling."""

from collections.abc import Mapping, Sequence

import torch

from penstock.kernels.sample import SampleParameters

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
    "greedy, mask of half the tokens": {"do_sample": False, "mask": 0},
    "plain, mask of half the tokens": {"mask": 0},
    "greedy, 5 likeliest": {"do_sample": False, "top_n": 5},
    "plain, 5 likeliest": {"top_n": 5},
}
NO_SAMPLING = SampleParameters(
    do_sample=torch.tensor(True), seed=torch.tensor(1), position=torch.tensor(7), branch=torch.tensor(0),
    prompt_length=torch.tensor(0), repetition_penalty=torch.tensor(1.0), share_penalty=torch.tensor(0.0),
    frequency_penalty=torch.tensor(0.0), presence_penalty=torch.tensor(0.0), mask=torch.tensor(-1),
    temperature=torch.tensor(1.0), top_k=torch.tensor(0), top_p=torch.tensor(1.0), typical_p=torch.tensor(1.0),
    min_p=torch.tensor(0.0), top_n=torch.tensor(0))  # fmt: skip


def parameters(rows: Sequence[Mapping[str, float]]) -> SampleParameters:
    """Returns the columns of rows that are a case each, with seeds of their own."""
    columns = {}
    for name in SampleParameters.__slots__:
        default = getattr(NO_SAMPLING, name)
        columns[name] = torch.tensor([row.get(name, default.item()) for row in rows], dtype=default.dtype)
    columns["seed"] = torch.arange(len(rows))
    return SampleParameters(**columns)
