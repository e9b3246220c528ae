"""How likely given tokens are: what a prompt's own tokens are scored by, and sampled ones by the logits as they are."""

import torch
from torch import Tensor

from kernels import dispatch
from kernels.checks import check_axes, check_tensor
from kernels.likeliest import Likeliest

_implementation = dispatch.choose("score")


def score(logits: Tensor, targets: Tensor, top_n: Tensor) -> tuple[Tensor, Likeliest]:
    """The log-probability of each row's target, float32 [R], and the likeliest tokens.

    logits   [R, V]  float32
    targets  [R]     int64
    top_n    [R]     int64: how many of the likeliest tokens to tell

    The log-probabilities are the log-softmax of the logits, NaN where the largest of them is no finite number. A row's
    result depends only on that row, and is what kernels.sample tells of a row without any parameters. Raises ValueError
    for shapes, dtypes or targets that do not fit.
    """
    op = "score"
    check_axes(op, "logits", logits, "R, V")
    check_tensor(op, "logits", logits, logits.shape, torch.float32)
    check_tensor(op, "targets", targets, logits.shape[:1], torch.int64)
    check_tensor(op, "top_n", top_n, logits.shape[:1], torch.int64)
    result: tuple[Tensor, Likeliest] = _implementation.score(logits, targets, top_n)
    return result
