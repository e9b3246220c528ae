"""Checks the targets of prompt logprobs, and of ranks."""

from torch import Tensor


def check_targets(op: str, targets: Tensor, vocabulary: int) -> None:
    """Raises ValueError unless each of them is one of the vocabulary's."""
    if not len(targets):
        return
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= vocabulary:
        raise ValueError(f"{op}: targets are between {low} and {high}, the vocabulary has {vocabulary} ids")
