"""Computes prompt logprobs in torch, in float64."""

from torch import Tensor

from penstock.kernels.log_sum_exp import log_sum_exp
from penstock.kernels.prompt_logprobs.targets import check_targets
from penstock.kernels.top_logprobs import TopLogprobs, find_top_logprobs


def prompt_logprobs(logits: Tensor, targets: Tensor, top_n: Tensor, top_width: int) -> tuple[Tensor, TopLogprobs]:
    check_targets("prompt_logprobs", targets, logits.shape[1])
    scores = logits.double()
    total = log_sum_exp(scores)
    logprobs = scores.gather(1, targets[:, None]) - total
    return logprobs[:, 0].float(), find_top_logprobs(scores, total, top_n, top_width)
