"""What the sampling tests share: rows as dictionaries, one call of the op, and the same computed row by row."""

import math

import torch
from torch import Tensor
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from kernels.sample import SampleParameters, sample

DEFAULTS = {
    "do_sample": True,
    "seed": 0,
    "position": 0,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
}
DTYPES = {"do_sample": torch.bool, "seed": torch.int64, "position": torch.int64, "top_k": torch.int64}


def columns(rows: list[dict]) -> dict[str, Tensor]:
    """The parameters of rows: each has those it names and the defaults."""
    assert all(row.keys() <= DEFAULTS.keys() for row in rows)
    return {
        name: torch.tensor([row.get(name, default) for row in rows], dtype=DTYPES.get(name, torch.float32))
        for name, default in DEFAULTS.items()
    }


def draw(logits: Tensor, rows: list[dict], histories: list[list[int]] | None = None) -> tuple[Tensor, Tensor]:
    """sample() of logits [R, V], with `columns(rows)`."""
    histories = histories or [[] for _ in rows]
    ids = torch.tensor([token for history in histories for token in history], dtype=torch.int64)
    offsets = torch.tensor([0, *(len(history) for history in histories)]).cumsum(0)
    return sample(logits, SampleParameters(**columns(rows)), ids, offsets)


def warp(logits: Tensor, row: dict, history: list[int]) -> Tensor:
    """One row's scores after penalties and cutoffs, float64 [V], by transformers and a plain frequency penalty."""
    row = {name: torch.tensor(row.get(name, default), dtype=DTYPES.get(name, torch.float32)).item()
           for name, default in DEFAULTS.items()}  # fmt: skip
    ids, scores = torch.tensor([history], dtype=torch.int64), logits.double()[None].clone()
    if history:
        scores = RepetitionPenaltyLogitsProcessor(row["repetition_penalty"])(ids, scores)
        for token in set(history):
            scores[0, token] -= row["frequency_penalty"] * history.count(token) / len(history)
    if row["do_sample"]:
        scores = TemperatureLogitsWarper(row["temperature"])(ids, scores)
        if row["top_k"]:
            scores = TopKLogitsWarper(row["top_k"])(ids, scores)
        if row["top_p"] < 1:
            scores = TopPLogitsWarper(row["top_p"])(ids, scores)
        if row["typical_p"] < 1:
            scores = TypicalLogitsWarper(row["typical_p"])(ids, scores)
    return scores[0]


def gumbel(seed: int, position: int, token: int) -> float:
    """The noise of one token, in Python's integers."""
    word = (token, position, 0, 0)
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    for _ in range(10):
        first, second = word[0] * 0xD2511F53, word[2] * 0xCD9E8D57
        word = (
            second >> 32 ^ word[1] ^ key[0], second & 0xFFFFFFFF,
            first >> 32 ^ word[3] ^ key[1], first & 0xFFFFFFFF,
        )  # fmt: skip
        key = (key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF)
    return -math.log(-math.log((word[0] + 0.5) * 2.0**-32))
