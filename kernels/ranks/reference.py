"""Counts in torch."""

import torch
from torch import Tensor

from penstock.kernels.prompt_logprobs.targets import check_targets


def ranks(logits: Tensor, targets: Tensor) -> Tensor:
    check_targets("ranks", targets, logits.shape[1])
    own, ids = logits.gather(1, targets[:, None]), torch.arange(logits.shape[1], device=logits.device)
    is_before = (logits > own) | ((logits == own) & (ids < targets[:, None]))
    return is_before.sum(dim=1) + 1
