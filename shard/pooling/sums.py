"""Joins the vectors of a text's tokens, in float32 and one after the other, so that no chunk and no batch changes a
bit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from penstock.kernels.segment_sum import segment_sum

FIRST, LAST, SUM, WEIGHTED, LARGEST = "first", "last", "sum", "weighted", "largest"
READS = {"cls": FIRST, "lasttoken": LAST, "mean": SUM, "mean_sqrt_len_tokens": SUM, "weightedmean": WEIGHTED,
         "max": LARGEST}
"""By pooling, what it reads of the tokens."""


@dataclass(slots=True)
class Running:
    """Holds the sums over the tokens of one text so far, which poolings read."""

    end: int = 0                         # the position behind the last token
    num_tokens: int = 0
    weight: int = 0                      # the sum of the tokens' positions, counted from 1
    parts: dict[str, Tensor] = field(default_factory=dict)  # float32 [C] each


@dataclass(frozen=True, slots=True)
class Tokens:
    """Names the tokens that one step adds to a text."""

    running: Running
    start: int                           # the position of the first
    count: int


def add_tokens(poolings: Sequence[str], tokens: Sequence[Tokens], x: Tensor) -> None:
    """Adds the vectors x, float32 [N, C], of all these tokens, one text's behind another's, to what is read of each
    text."""
    ends = [0, *accumulate(each.count for each in tokens)]
    spans = list(pairwise(ends))
    for part in dict.fromkeys(READS[pooling] for pooling in poolings):
        if part in (SUM, WEIGHTED):
            rows = x * _weights(tokens, x.device)[:, None] if part is WEIGHTED else x
            sums = torch.stack([each.running.parts.get(part, x.new_zeros(x.shape[1])) for each in tokens])
            add_in_order(sums, rows, [each.count for each in tokens])
            for each, total in zip(tokens, sums, strict=True):
                each.running.parts[part] = total
        else:
            for each, (begin, end) in zip(tokens, spans, strict=True):
                if begin < end:
                    each.running.parts[part] = _joined(part, each.running.parts.get(part), x[begin:end])
    for each in tokens:
        each.running.num_tokens += each.count
        each.running.weight += sum(range(each.start + 1, each.start + each.count + 1))


def pooled(poolings: Sequence[str], running: Running) -> Tensor:
    """Returns the vectors that poolings make of a text's tokens, one behind the other: float32 [P * C]."""
    vectors = []
    for pooling in poolings:
        part = running.parts[READS[pooling]]
        if pooling == "mean":
            part = part / float(running.num_tokens)
        elif pooling == "mean_sqrt_len_tokens":
            part = part / running.num_tokens**0.5
        elif pooling == "weightedmean":
            part = part / float(running.weight)
        vectors.append(part)
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors)


def add_in_order(sums: Tensor, x: Tensor, counts: Sequence[int]) -> None:
    """Adds rows of x [N, C] to the sums [R, C], in place: to each the next `counts`, one after the other."""
    segment_sum(x, torch.tensor(counts, dtype=torch.int32, device=x.device), sums)


def _weights(tokens: Sequence[Tokens], device: torch.device) -> Tensor:
    """Returns the weight of each token: its position, counted from 1."""
    return torch.cat([torch.arange(each.start + 1, each.start + each.count + 1, dtype=torch.float32)
                      for each in tokens]).to(device)


def _joined(part: str, before: Tensor | None, rows: Tensor) -> Tensor:
    """Returns the sums over a text with more rows: no views of these, which would keep a whole step's in memory."""
    if part == FIRST:
        return rows[0].clone() if before is None else before
    if part == LAST:
        return rows[-1].clone()
    largest = rows.amax(dim=0)
    return largest if before is None else torch.maximum(before, largest)
