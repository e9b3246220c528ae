"""The likeliest tokens of rows of scores with their log-probabilities, which ops return."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """Holds the likeliest tokens of each row: the likeliest first, of equal ones the lowest id first.

    A row has as many as were asked for, or all that have a probability above 0 if those are fewer; the rest of its
    places have the id -1 and the log-probability -inf. A row of scores that are no numbers has none.
    """

    ids: Tensor  # int64 [R, N], N at least the largest number that was asked for
    logprobs: Tensor  # float32 [R, N]

    @classmethod
    def empty(cls, num_rows: int, width: int, device: torch.device | str = "cpu") -> "TopLogprobs":
        """Allocates one whose contents are undefined."""
        return cls(torch.empty(num_rows, width, dtype=torch.int64, device=device),
                   torch.empty(num_rows, width, device=device))


def find_top_logprobs(scores: Tensor, total: Tensor, top_n: Tensor, width: int) -> TopLogprobs:
    """Finds them by a sort, for reference, in scores [R, V] whose log-sum-exp is total [R, 1], both float64."""
    top = TopLogprobs.empty(len(scores), width)
    top.ids.fill_(-1)
    top.logprobs.fill_(-torch.inf)
    for row in top_n.nonzero()[:, 0].tolist():
        values, ids = (scores[row] - total[row]).sort(descending=True, stable=True)
        values = values[: top_n[row]]
        count = int(values.isfinite().sum())
        top.ids[row, :count], top.logprobs[row, :count] = ids[:count], values[:count].float()
    return top
