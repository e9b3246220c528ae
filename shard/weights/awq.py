"""AWQ's files (Lin et al. 2023), in the order that AutoAWQ calls GEMM."""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.shard.weights.coded import CodedFormat
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.packed_codes import (
    codes_of_words,
    finite,
    groups,
    num_units,
    one_zero,
    units,
)
from penstock.shard.weights.stored import StoredTensor

BITS, PER_WORD = 4, 8
PLACES = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])  # in a word, of each of 8 outputs


class Awq(CodedFormat):
    """NAME.qweight int32 [K, N / 8], .qzeros int32 [G, N / 8] and .scales [G, N]: a value is (code - zero) * scale."""

    def __init__(self, activations: Activations, group: int) -> None:
        """group: 0 for one of all inputs."""
        super().__init__(activations)
        self.group = group

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        inputs, words = part.in_features, num_units(part.out_features, PER_WORD)
        num_groups, own_groups = num_units(inputs, self.group), groups(part.columns, self.group)
        own_words = units(part.rows, PER_WORD)
        return (
            StoredTensor(f"{linear}.qweight", (inputs, words), (part.columns, own_words), ("I32",)),
            StoredTensor(f"{linear}.qzeros", (num_groups, words), (own_groups, own_words), ("I32",)),
            StoredTensor(f"{linear}.scales", (num_groups, part.out_features), (own_groups, part.rows),
                         ("F16", "BF16", "F32")))

    def decode(self, tensors: Sequence[Tensor], part: LinearPart) -> CodedWeight:
        words, packed_zeros, scales = tensors
        zeros = _of_outputs(packed_zeros, part).short()
        zero = one_zero(zeros)
        return CodedWeight(_of_outputs(words, part), BITS, self.group or part.in_features,
                           finite("scales", scales.t()), zero=zero or 0,
                           zeros=zeros if zero is None else None, start=part.columns.start)


def _of_outputs(words: Tensor, part: LinearPart) -> Tensor:
    """Returns the codes of the part's outputs, uint8 [N, A], of words [A, W]."""
    codes = codes_of_words(words, BITS).t()
    first = part.rows.start // PER_WORD * PER_WORD
    outputs = torch.arange(part.rows.start, part.rows.stop) - first
    return codes.contiguous()[outputs // PER_WORD * PER_WORD + PLACES[outputs % PER_WORD]]
