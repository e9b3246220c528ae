"""Computes prompt logprobs in C++ (csrc/prompt_logprobs.cpp)."""

import ctypes

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.prompt_logprobs.targets import check_targets
from penstock.kernels.top_logprobs import TopLogprobs


def prompt_logprobs(logits: Tensor, targets: Tensor, top_n: Tensor, top_width: int) -> tuple[Tensor, TopLogprobs]:
    num_rows, vocabulary = logits.shape
    logprobs, top, is_wrong = torch.empty(num_rows), TopLogprobs.empty(num_rows, top_width), ctypes.c_int64()
    native.library.prompt_logprobs(
        logits.data_ptr(), num_rows, vocabulary, targets.data_ptr(), top_n.data_ptr(), top.ids.shape[1],
        logprobs.data_ptr(), top.ids.data_ptr(), top.logprobs.data_ptr(), ctypes.addressof(is_wrong))
    if is_wrong.value:
        check_targets("prompt_logprobs", targets, vocabulary)
    return logprobs, top
