"""The choice of experts in C++ (csrc/route.cpp), in float32."""

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.native import address
from penstock.kernels.route.form import RouteForm


def route(logits: Tensor, bias: Tensor | None, form: RouteForm) -> tuple[Tensor, Tensor]:
    shape = len(logits), form.top_k
    ids, weights = torch.empty(shape, dtype=torch.int32), torch.empty(shape)
    native.library.route(
        logits.data_ptr(), address(bias), *logits.shape, form.scoring.number, form.top_k, form.is_normalised,
        form.scale, form.num_groups, form.top_groups, form.group_best, form.jitter, ids.data_ptr(), weights.data_ptr())
    return ids, weights
