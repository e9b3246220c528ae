"""Scores in float64."""

from torch import Tensor

from penstock.kernels.likeliest import Likeliest, find_likeliest
from penstock.kernels.log_sum_exp import log_sum_exp
from penstock.kernels.score.targets import check_targets


def score(logits: Tensor, targets: Tensor, top_n: Tensor, top_width: int) -> tuple[Tensor, Likeliest]:
    check_targets(targets, logits.shape[1])
    scores = logits.double()
    total = log_sum_exp(scores)
    logprobs = scores.gather(1, targets[:, None]) - total
    return logprobs[:, 0].float(), find_likeliest(scores, total, top_n, top_width)
