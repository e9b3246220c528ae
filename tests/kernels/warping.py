"""Scores of one row by transformers' processors of logits, as an oracle of the sampling kernels."""

import torch
from torch import Tensor
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from penstock.kernels.sample.parameters import COLUMNS
from tests.kernels.sampling import DEFAULTS


def warp(logits: Tensor, row: dict, history: list[int]) -> Tensor:
    """One row's scores after penalties and cutoffs, float64 [V], by transformers and plain sums."""
    bias, allowed = row.get("bias", ()), row.get("allowed", range(len(logits)))
    row = {name: torch.tensor(row.get(name, default), dtype=COLUMNS[name]).item() for name, default in DEFAULTS.items()}
    ids, scores = torch.tensor([history], dtype=torch.int64), logits.double()[None].clone()
    if row["of_logprobs"]:
        scores = torch.log_softmax(scores, dim=1)
    if history:
        output = history[row["prompt_length"] :]
        scores = RepetitionPenaltyLogitsProcessor(row["repetition_penalty"])(ids, scores)
        for token in set(history):
            scores[0, token] -= row["share_penalty"] * history.count(token) / len(history)
            scores[0, token] -= row["frequency_penalty"] * output.count(token)
            scores[0, token] -= row["presence_penalty"] * (token in output)
    for token, value in bias:
        scores[0, token] += value
    ruled_out = torch.ones(len(logits), dtype=torch.bool)
    ruled_out[list(allowed)] = False
    scores[0, ruled_out] = -torch.inf
    if row["do_sample"]:
        scores = TemperatureLogitsWarper(row["temperature"])(ids, scores)
        if row["top_k"]:
            scores = TopKLogitsWarper(row["top_k"])(ids, scores)
        if row["top_p"] < 1:
            scores = TopPLogitsWarper(row["top_p"])(ids, scores)
        if row["typical_p"] < 1:
            scores = TypicalLogitsWarper(row["typical_p"])(ids, scores)
        if row["min_p"]:
            scores = MinPLogitsWarper(row["min_p"])(ids, scores)
    return scores[0]
