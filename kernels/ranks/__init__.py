"""Counts how many tokens are likelier than given ones, by the logits as they are."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import check_axes, check_tensor
from penstock.kernels.ranks import reference

_ranks = dispatch.choose(reference.ranks)


def ranks(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the place of each row's target in the order of top logprobs, int64 [R]: 1 for the likeliest token, of
    equal ones the lowest id.

    logits   [R, V]  float32
    targets  [R]     int64

    What is no number is likelier than nothing, and nothing is likelier than it. A row's result depends only on that
    row. Raises ValueError for shapes and dtypes that do not fit, and, on a processor, for targets.
    """
    op = "ranks"
    check_axes(op, "logits", logits, "R, V")
    check_tensor(op, "logits", logits, logits.shape, torch.float32)
    check_tensor(op, "targets", targets, logits.shape[:1], torch.int64)
    return _ranks(logits, targets)
