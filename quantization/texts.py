"""The texts that a quantisation is calibrated and judged with."""

from pathlib import Path

import tokenizers
import torch
from torch import Tensor

LEAST_WINDOWS = 2


class TextsError(ValueError):
    """There is too little text, or it can't be read: the message names the file."""


def windows_of(path: Path, tokenizer: Path, count: int, length: int) -> Tensor:
    """Returns up to `count` windows of `length` token ids, int64 [W, length], spread evenly over a text in UTF-8.

    Raises TextsError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TextsError(f"{path} cannot be read: {error}") from error
    ids = torch.tensor(tokenizers.Tokenizer.from_file(str(tokenizer)).encode(text, add_special_tokens=False).ids)
    whole = ids[: len(ids) // length * length].view(-1, length).long()
    if len(whole) < LEAST_WINDOWS:
        raise TextsError(f"{path} has {len(ids)} tokens, at least {LEAST_WINDOWS * length} are needed, for "
                         f"{LEAST_WINDOWS} windows of {length}")
    picked = torch.linspace(0, len(whole) - 1, min(count, len(whole))).round().long()
    return whole[picked]


def random_windows(vocab_size: int, count: int, length: int) -> Tensor:
    """Returns windows of token ids at random, the same each time, int64 [count, length]."""
    return torch.randint(vocab_size, (count, length), generator=torch.Generator().manual_seed(0))
