"""Samples in C++, without a sort and with few logarithms: csrc/sample.cpp says how.

Penalties and noise are computed in float64; scores and weights are float32, the sums that cutoffs compare exact.
"""

import ctypes

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.sample.parameters import Biases, History, Sampled, SampleParameters
from penstock.kernels.sample.ragged import check_biases, check_history, check_masks
from penstock.kernels.top_logprobs import TopLogprobs

_Batch = native.structure("SampleBatch")


def sample(
    logits: Tensor, parameters: SampleParameters, history: History, biases: Biases, masks: Tensor, top_width: int
) -> Sampled:
    num_rows, vocabulary = logits.shape
    top = TopLogprobs.empty(num_rows, top_width)
    sampled = Sampled(torch.empty(num_rows, dtype=torch.int64), torch.empty(num_rows), top)
    columns = {name: column.data_ptr() for name, column in parameters.columns.items()}
    batch = _Batch(
        rows=num_rows, vocabulary=vocabulary, logits=logits.data_ptr(), **columns,
        history_length=history.ids.numel(), history_ids=history.ids.data_ptr(),
        history_offsets=history.offsets.data_ptr(), num_biases=biases.ids.numel(), bias_ids=biases.ids.data_ptr(),
        bias_values=biases.values.data_ptr(), bias_offsets=biases.offsets.data_ptr(), num_masks=masks.shape[0],
        masks=masks.data_ptr(),
        top_width=top.ids.shape[1], ids=sampled.ids.data_ptr(), logprobs=sampled.logprobs.data_ptr(),
        top_ids=top.ids.data_ptr(), top_logprobs=top.logprobs.data_ptr())
    is_wrong = ctypes.c_int64()
    native.library.sample(ctypes.addressof(batch), ctypes.addressof(is_wrong))
    if is_wrong.value:
        check_biases(biases, vocabulary)
        check_masks(parameters, masks, vocabulary)
        check_history(history, vocabulary)
    return sampled
