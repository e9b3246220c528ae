"""The logarithm of a sum of exponentials, over the vocabulary."""

import torch
from torch import Tensor
from torch.nn import functional

SEGMENTS = 8  # of the vocabulary


def log_sum_exp(scores: Tensor) -> Tensor:
    """Returns [R, 1]: sums over SEGMENTS equal parts of the vocabulary are added in a binary tree."""
    num_rows, vocabulary = scores.shape
    top = scores.amax(dim=1, keepdim=True)
    width = -(-vocabulary // SEGMENTS)
    padded = functional.pad(scores - top, (0, SEGMENTS * width - vocabulary), value=-torch.inf)
    sums = padded.exp_().view(num_rows, SEGMENTS, width).sum(dim=2)
    while sums.shape[1] > 1:
        sums = sums[:, 0::2] + sums[:, 1::2]
    return top + sums.log()
