"""Sampling in C++, without a sort and with few logarithms: csrc/sample.cpp says how.

Penalties and noise are computed in float64; scores and weights are float32, the sums that cutoffs compare exact.
"""

import ctypes

import torch
from torch import Tensor

from kernels import native
from kernels.sample.history import check_history
from kernels.sample.parameters import SampleParameters


def sample(
    logits: Tensor, parameters: SampleParameters, history_ids: Tensor, history_offsets: Tensor
) -> tuple[Tensor, Tensor]:
    num_rows, vocabulary = logits.shape
    ids, logprobs = torch.empty(num_rows, dtype=torch.int64), torch.empty(num_rows)
    is_wrong = ctypes.c_int64()
    p = parameters
    native.library.sample(
        logits.data_ptr(), num_rows, vocabulary, p.do_sample.data_ptr(), p.seed.data_ptr(), p.position.data_ptr(),
        p.temperature.data_ptr(), p.top_k.data_ptr(), p.top_p.data_ptr(), p.typical_p.data_ptr(),
        p.repetition_penalty.data_ptr(), p.frequency_penalty.data_ptr(), history_ids.data_ptr(),
        history_offsets.data_ptr(), len(history_ids), ids.data_ptr(), logprobs.data_ptr(), ctypes.addressof(is_wrong))
    if is_wrong.value:
        check_history(history_ids, history_offsets, vocabulary)
    return ids, logprobs
