"""GPTQ's files (Frantar et al. 2022), as AutoGPTQ and GPTQModel write them."""

from collections.abc import Sequence

from torch import Tensor

from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.shard.weights.coded import CodedFormat
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.packed_codes import (
    codes_of_words,
    finite,
    groups,
    input_order,
    num_units,
    one_zero,
    per_word,
    units,
    within,
)
from penstock.shard.weights.stored import StoredTensor


class Gptq(CodedFormat):
    """NAME.qweight int32 [K * bits / 32, N], .qzeros int32 [G, N * bits / 32], .scales [G, N], and .g_idx int32 [K].

    A value is (code - zero) * scale. Files of version 1 hold in place of each zero 1 less; since their words were
    subtracted from as a whole, they are added to as a whole.
    """

    def __init__(self, activations: Activations, bits: int, group: int, is_version_1: bool, is_ordered: bool) -> None:
        """group: 0 for one of all inputs; is_ordered: the groups are of inputs that follow one another."""
        super().__init__(activations)
        self.bits, self.group = bits, group
        self._is_version_1, self._is_ordered = is_version_1, is_ordered

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        per, outputs, inputs = per_word(self.bits), part.out_features, part.in_features
        columns, rows, words = self._columns(part), part.rows, units(part.rows, per)
        num_groups, own_groups = num_units(inputs, self.group), groups(columns, self.group)
        return (
            StoredTensor(f"{linear}.qweight", (num_units(inputs, per), outputs), (units(columns, per), rows), ("I32",)),
            StoredTensor(f"{linear}.qzeros", (num_groups, num_units(outputs, per)), (own_groups, words), ("I32",)),
            StoredTensor(f"{linear}.scales", (num_groups, outputs), (own_groups, rows), ("F16", "BF16", "F32")),
            StoredTensor(f"{linear}.g_idx", (inputs,), (slice(0, inputs),), ("I32", "I64"),
                         is_optional=self._is_ordered))

    def decode(self, tensors: Sequence[Tensor], part: LinearPart) -> CodedWeight:
        words, packed_zeros, scales, _ = tensors
        per = per_word(self.bits)
        start = units(self._columns(part), per).start * per
        codes = codes_of_words(words.t(), self.bits)[:, : part.in_features - start].contiguous()
        order = self.order(tensors, part)
        if order is not None:
            codes = codes[:, order]
        if self._is_version_1:
            packed_zeros = packed_zeros + sum(1 << shift for shift in range(0, 31, self.bits))
        zeros = within(codes_of_words(packed_zeros, self.bits).t(), part.rows, per).short().contiguous()
        zero = one_zero(zeros)
        return CodedWeight(codes, self.bits, self.group or part.in_features, finite("scales", scales.t()),
                           zero=zero or 0, zeros=zeros if zero is None else None, start=start)

    def order(self, tensors: Sequence[Tensor], part: LinearPart) -> Tensor | None:
        return input_order("g_idx", tensors[3], part, self.group)

    def _columns(self, part: LinearPart) -> slice:
        """Returns the inputs that are read: all, where this part's may be anywhere among them."""
        return part.columns if self._is_ordered else slice(0, part.in_features)
