"""Computes log-probabilities of given tokens, by the logits as they are: a prompt's own tokens, and sampled ones."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import check_axes, check_tensor
from penstock.kernels.prompt_logprobs import reference
from penstock.kernels.top_logprobs import TopLogprobs

_prompt_logprobs = dispatch.choose(reference.prompt_logprobs)


def prompt_logprobs(
    logits: Tensor, targets: Tensor, top_n: Tensor, top_width: int | None = None
) -> tuple[Tensor, TopLogprobs]:
    """Returns the log-probability of each row's target, float32 [R], and the likeliest tokens.

    logits   [R, V]  float32
    targets  [R]     int64
    top_n    [R]     int64: how many of the likeliest tokens to tell
    top_width        the largest of them; None looks, for which one has to wait if they are on a GPU

    The log-probabilities are the log-softmax of the logits, NaN where the largest of them is no finite number. A row's
    result depends only on that row, and is what `sample` tells of a row without any parameters. Raises ValueError
    for shapes and dtypes that do not fit, and, on a processor, for targets.
    """
    op = "prompt_logprobs"
    check_axes(op, "logits", logits, "R, V")
    check_tensor(op, "logits", logits, logits.shape, torch.float32)
    check_tensor(op, "targets", targets, logits.shape[:1], torch.int64)
    check_tensor(op, "top_n", top_n, logits.shape[:1], torch.int64)
    width = int(top_n.max()) if top_width is None and len(top_n) else top_width or 0
    return _prompt_logprobs(logits, targets, top_n, width)
