"""Checks the values of full_attention's counts."""

from torch import Tensor


def check_counts(q: Tensor, counts: list[int]) -> None:
    """Raises ValueError unless the counts are those of q's rows."""
    if sum(counts) != q.shape[0] or min(counts, default=0) < 0:
        raise ValueError(f"full_attention: q has {q.shape[0]} rows, counts are {counts} with sum {sum(counts)}")
