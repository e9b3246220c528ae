"""Chooses the next token of each row by penalties, cutoffs and noise that depends on nothing but the row itself."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import check_axes, check_tensor
from penstock.kernels.sample import reference
from penstock.kernels.sample.parameters import COLUMNS, Biases, History, Sampled, SampleParameters
from penstock.kernels.sample.ragged import WORD

__all__ = ["Biases", "History", "SampleParameters", "Sampled", "sample"]


_sample = dispatch.choose(reference.sample)


def sample(
    logits: Tensor, parameters: SampleParameters, history: History, biases: Biases, masks: Tensor,
    top_width: int | None = None,
) -> Sampled:
    """Returns the chosen token of each row with its log-probability, and the likeliest ones.

    logits  [R, V]  float32
    masks   [M, ceil(V / 32)]  int32: a bit for each token, the lowest of the first word first; 1 allows it
    top_width  the largest of parameters.top_n; None looks, for which one has to wait if they are on a GPU

    In this order: where `of_logprobs`, the log-softmax of logits that are numbers; the repetition penalty (Keskar et
    al. 2019) divides the positive scores and multiplies the negative scores of the ids in the history; the share
    penalty f takes f * (count of the id) / (length of the history) away; the frequency penalty f takes f for each time
    that the id is in the output; the presence penalty takes itself from the ids in the output; biases are added; what
    the mask does not allow is ruled out; temperature; top-k; top-p (Holtzman et al. 2019); typical-p (Meister et al.
    2022); min-p (Nguyen et al. 2024) keeps what is at least min_p times as likely as the likeliest that is left. A
    cutoff keeps every token that equals its boundary.

    Then the token is the largest of score - log(E), E = -log((r + ½) · 2⁻³²), with r the first word of Philox4x32-10
    (Salmon et al. 2011) for the key seed and the counter (token id, position, branch, 0): the Gumbel-max form of
    sampling from the softmax. Ties go to the lowest id. The log-probabilities are the log-softmax of the scores after
    the cutoffs; where `of_logprobs`, they are the scores themselves. A row's result depends only on that row.

    A mask always holds: bans do not count in a row of which they and the mask leave nothing. Raises ValueError for
    shapes and dtypes that do not fit; and, on a processor, for ids and masks that do not, and for a mask that allows
    nothing.
    """
    op = "sample"
    check_axes(op, "logits", logits, "R, V")
    num_rows, vocabulary = logits.shape
    check_tensor(op, "logits", logits, logits.shape, torch.float32)
    for name, dtype in COLUMNS.items():
        check_tensor(op, name, parameters.columns[name], (num_rows,), dtype)
    check_axes(op, "history_ids", history.ids, "total")
    check_tensor(op, "history_ids", history.ids, history.ids.shape, torch.int64)
    check_tensor(op, "history_offsets", history.offsets, (num_rows + 1,), torch.int64)
    check_axes(op, "bias_ids", biases.ids, "total")
    check_tensor(op, "bias_ids", biases.ids, biases.ids.shape, torch.int64)
    check_tensor(op, "bias_values", biases.values, biases.ids.shape, torch.float32)
    check_tensor(op, "bias_offsets", biases.offsets, (num_rows + 1,), torch.int64)
    check_axes(op, "masks", masks, "M, words")
    check_tensor(op, "masks", masks, (masks.shape[0], -(-vocabulary // WORD)), torch.int32)
    width = int(parameters.top_n.max()) if top_width is None and num_rows else top_width or 0
    return _sample(logits, parameters, history, biases, masks, width)
