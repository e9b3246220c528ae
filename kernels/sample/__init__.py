"""Choosing the next token of each row: penalties, cutoffs and noise that depends on nothing but the row itself."""

import torch
from torch import Tensor

from kernels import dispatch
from kernels.checks import check_axes, check_tensor
from kernels.sample.parameters import SampleParameters

__all__ = ["SampleParameters", "sample"]

_implementation = dispatch.choose("sample")

_DTYPES = {
    "do_sample": torch.bool,
    "seed": torch.int64,
    "position": torch.int64,
    "temperature": torch.float32,
    "top_k": torch.int64,
    "top_p": torch.float32,
    "typical_p": torch.float32,
    "repetition_penalty": torch.float32,
    "frequency_penalty": torch.float32,
}


def sample(
    logits: Tensor, parameters: SampleParameters, history_ids: Tensor, history_offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """The chosen token of each row, int64 [R], and its log-probability, float32 [R].

    logits           [R, V]   float32
    history_ids      [total]  int64: the ids, prompt and output, of the rows that have penalties, row after row
    history_offsets  [R + 1]  int64: row r's history is history_ids[history_offsets[r]:history_offsets[r + 1]]

    In this order: the repetition penalty (Keskar et al. 2019) divides the positive scores and multiplies the negative
    scores of the ids in the history; the frequency penalty f takes f * (count of the id) / (length of the history)
    away; temperature; top-k; top-p (Holtzman et al. 2019); typical-p (Meister et al. 2022). A cutoff keeps every token
    that equals its boundary. Then the token is the largest of score - log(E), E = -log((r + ½) · 2⁻³²), with r the
    first word of Philox4x32-10 (Salmon et al. 2011) for the key seed and the counter (token id, position, 0, 0): the
    Gumbel-max form of sampling from the softmax. Ties go to the lowest id. The log-probability is the log-softmax of
    the scores after the cutoffs. A row's result depends only on that row. Raises ValueError for shapes, dtypes or
    history ids that do not fit.
    """
    op = "sample"
    check_axes(op, "logits", logits, "R, V")
    num_rows = logits.shape[0]
    check_tensor(op, "logits", logits, logits.shape, torch.float32)
    for name, dtype in _DTYPES.items():
        check_tensor(op, name, getattr(parameters, name), (num_rows,), dtype)
    check_axes(op, "history_ids", history_ids, "total")
    check_tensor(op, "history_ids", history_ids, history_ids.shape, torch.int64)
    check_tensor(op, "history_offsets", history_offsets, (num_rows + 1,), torch.int64)
    result: tuple[Tensor, Tensor] = _implementation.sample(logits, parameters, history_ids, history_offsets)
    return result
