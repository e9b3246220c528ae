"""Sums of segments in torch. The order of float32 additions is what the op promises, so here they are float32, too."""

from torch import Tensor


def segment_sum(x: Tensor, counts: Tensor, sums: Tensor) -> None:
    lengths = counts.tolist()
    check_counts(x, lengths)
    row = 0
    for total, count in zip(sums, lengths, strict=True):
        for own in x[row : row + count].float():
            total += own
        row += count


def check_counts(x: Tensor, counts: list[int]) -> None:
    """Raises ValueError unless the counts are those of x's rows."""
    if sum(counts) != len(x) or min(counts, default=0) < 0:
        raise ValueError(f"segment_sum: x has {len(x)} rows, counts are {counts} with sum {sum(counts)}")
