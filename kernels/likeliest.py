"""The likeliest tokens of rows of scores, as the ops tell them."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Likeliest:
    """The likeliest tokens of each row: the likeliest first, of equal ones the lowest id first.

    A row has as many as were asked for, or all that have a probability above 0 if those are fewer; the rest of its
    places have the id -1 and the log-probability -inf. A row of scores that are no numbers has none.
    """

    ids: Tensor  # int64 [R, N], for the largest number N that was asked for
    logprobs: Tensor  # float32 [R, N]

    @classmethod
    def empty(cls, top_n: Tensor) -> "Likeliest":
        """With room for what top_n, int64 [R], asks for, and anything in it."""
        counts = top_n.tolist()
        shape = len(counts), max(counts, default=0)
        return cls(torch.empty(shape, dtype=torch.int64), torch.empty(shape))


def find_likeliest(scores: Tensor, total: Tensor, top_n: Tensor) -> Likeliest:
    """Of scores [R, V] whose log-sum-exp is total [R, 1], both float64, by a sort: the reference."""
    top = Likeliest.empty(top_n)
    top.ids.fill_(-1)
    top.logprobs.fill_(-torch.inf)
    for row in top_n.nonzero()[:, 0].tolist():
        values, ids = (scores[row] - total[row]).sort(descending=True, stable=True)
        values = values[: top_n[row]]
        count = int(values.isfinite().sum())
        top.ids[row, :count], top.logprobs[row, :count] = ids[:count], values[:count].float()
    return top
