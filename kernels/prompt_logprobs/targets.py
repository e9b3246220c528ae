"""Checks the targets of prompt logprobs."""

from torch import Tensor


def check_targets(targets: Tensor, vocabulary: int) -> None:
    """Raises ValueError unless each of them is one of the vocabulary's."""
    if not len(targets):
        return
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= vocabulary:
        raise ValueError(f"prompt_logprobs: targets are between {low} and {high}, the vocabulary has {vocabulary} ids")
