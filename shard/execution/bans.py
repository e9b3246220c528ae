"""The tokens that may not be sampled in a slot: all but the allowed ones, and those that would complete a bad word."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.contract.sampling import Sampling
from penstock.shard.execution.ids import Ids, as_array
from penstock.shard.execution.masks import WORD, Mask

NO_ID = -1
"""Stands where a bad word has fewer tokens before its last than the longest one."""


def allowed_mask(sampling: Sampling, vocab_size: int) -> Mask | None:
    """Returns the mask of the tokens that are allowed, a bit for each token as in `Masks`; None if all are."""
    if not len(sampling.allowed_ids):
        return None
    bits = np.zeros(-(-vocab_size // WORD) * WORD, bool)
    bits[as_array(sampling.allowed_ids)] = True
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32)


@dataclass(frozen=True, slots=True)
class BadWords:
    """Holds N sequences of tokens that an output may not have. Each of `last_ids` is banned behind the tokens before
    it, which stand at the right of its row of `before`, with NO_ID at the left of them."""

    last_ids: Ids                        # [N]
    num_before: Ids                      # [N]
    before: npt.NDArray[np.int64]        # [N, the most tokens before a last one]

    @classmethod
    def of(cls, sampling: Sampling) -> Self | None:
        """Returns those of a sampling; None if there are none."""
        if not sampling.bad_word_lengths:
            return None
        lengths = np.array(sampling.bad_word_lengths, np.int64)
        words = np.split(as_array(sampling.bad_word_ids), np.cumsum(lengths)[:-1])
        before = np.full((len(words), int(lengths.max()) - 1), NO_ID, np.int64)
        for row, word in zip(before, words, strict=True):
            row[len(row) - len(word) + 1:] = word[:-1]
        return cls(np.array([word[-1] for word in words], np.int64), lengths - 1, before)

    def reached(self, num_outputs: int) -> Self:
        """Returns the words that the next token of an output of so many tokens may complete."""
        is_near = self.num_before <= num_outputs
        return type(self)(self.last_ids[is_near], self.num_before[is_near], self.before[is_near])

    def placed(self, end: int, width: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Returns the tokens before the last ones, `width` for each word, and the places in the histories with which
        they are compared, [N, width] each. The output's next token will be kept at the place `end`."""
        ids = np.pad(self.before, ((0, 0), (width - self.before.shape[1], 0)), constant_values=NO_ID)
        return ids, np.where(ids == NO_ID, 0, np.arange(end - width, end))


def with_bans(values: Tensor, numbers: Tensor, before: Tensor, history: Tensor) -> Tensor:
    """Returns the values of biases, with those of the last tokens of M bad words: -inf where the word began, else 0.

    values    float32 [total]
    numbers   int64 [M]: which of them are those of the words
    before    int64 [M, width]: the tokens before each word's last one, NO_ID where there is none
    history   int64 [M, width]: the tokens that are in the output there
    """
    has_begun = ((before == history) | (before == NO_ID)).all(dim=1)
    return values.index_copy(0, numbers, torch.where(has_begun, -torch.inf, 0.0).to(values.dtype))
