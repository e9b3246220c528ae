"""Checks histories, biases and masks."""

import torch
from torch import Tensor

from penstock.kernels.sample.parameters import Biases, History, SampleParameters

WORD = 32  # tokens


def check_history(history: History, vocabulary: int) -> None:
    """Raises ValueError unless the offsets cut all of the ids and each of them is one of the vocabulary's."""
    _check_cut("history_ids", history.ids, history.offsets, vocabulary)


def check_biases(biases: Biases, vocabulary: int) -> None:
    """Raises ValueError for biases as `check_history` does for histories."""
    _check_cut("bias_ids", biases.ids, biases.offsets, vocabulary)


def is_penalised(parameters: SampleParameters, history: History) -> Tensor:
    """Returns which rows' penalties change scores, and so read the history: bool [R]."""
    p = parameters
    others = torch.stack((p.share_penalty, p.frequency_penalty, p.presence_penalty))
    return ((p.repetition_penalty != 1) | others.bool().any(dim=0)) & (history.offsets.diff() > 0)


def check_masks(parameters: SampleParameters, masks: Tensor, vocabulary: int) -> None:
    """Raises ValueError for a mask that is not there, or that allows nothing."""
    rows = (parameters.mask >= 0).nonzero()[:, 0]
    if not len(rows):
        return
    last = int(parameters.mask.max())
    if last >= len(masks):
        raise ValueError(f"sample: a row has mask {last}, but there are {len(masks)} masks")
    is_empty = ~unpack(masks, vocabulary).any(dim=1)
    for row, mask in zip(rows.tolist(), parameters.mask[rows].tolist(), strict=True):
        if is_empty[mask]:
            raise ValueError(f"sample: mask {mask} of row {row} allows none of {vocabulary} tokens")


def unpack(masks: Tensor, vocabulary: int) -> Tensor:
    """Returns masks, int32 [M, words], as bool [M, V]."""
    bits = masks[:, :, None] >> torch.arange(WORD, dtype=torch.int32, device=masks.device) & 1
    return bits.bool().flatten(1)[:, :vocabulary]


def _check_cut(name: str, ids: Tensor, offsets: Tensor, vocabulary: int) -> None:
    if offsets[0] != 0 or len(ids) != offsets[-1] or (offsets.diff() < 0).any():
        raise ValueError(f"sample: {len(ids)} {name}, but the offsets are {offsets.tolist()}")
    if not len(ids):
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocabulary:
        raise ValueError(f"sample: {name} are between {low} and {high}, the vocabulary has {vocabulary} ids")
