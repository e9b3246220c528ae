"""Whole numbers in compressed-tensors' files (pack-quantized and int-quantized)."""

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
    input_order,
    num_units,
    one_zero,
    per_word,
    units,
    within,
)
from penstock.shard.weights.stored import StoredTensor

FLOATS = ("F16", "BF16", "F32")


class CompressedIntegers(CodedFormat):
    """NAME.weight_packed int32 [N, K * bits / 32], whose codes are 2 ** (bits - 1) more than the numbers, or .weight
    int8 [N, K]; .weight_scale [N, G], or [1] for all; and unless it is symmetric .weight_zero_point of its shape, int8,
    or packed like the weight, but along the outputs."""

    def __init__(
        self, activations: Activations, bits: int, group: int, symmetric: bool, is_packed: bool,
        has_one_scale: bool = False,
    ) -> None:
        """group: 0 for one of all inputs."""
        super().__init__(activations)
        self.bits, self.group, self.symmetric = bits, group, symmetric
        self._is_packed, self._has_one_scale = is_packed, has_one_scale

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        outputs, inputs, per = part.out_features, part.in_features, per_word(self.bits)
        num_groups, own_groups = num_units(inputs, self.group), groups(part.columns, self.group)
        weight = StoredTensor(f"{linear}.weight", (outputs, inputs), (part.rows, part.columns), ("I8",))
        zeros = StoredTensor(f"{linear}.weight_zero_point", (outputs, num_groups), (part.rows, own_groups), ("I8",),
                             has_any_shape=self._has_one_scale)
        if self._is_packed:
            weight = StoredTensor(f"{linear}.weight_packed", (outputs, num_units(inputs, per)),
                                  (part.rows, units(part.columns, per)), ("I32",))
            zeros = StoredTensor(f"{linear}.weight_zero_point", (num_units(outputs, per), num_groups),
                                 (units(part.rows, per), own_groups), ("I32",))
        scales = StoredTensor(f"{linear}.weight_scale", (outputs, num_groups), (part.rows, own_groups), FLOATS,
                              has_any_shape=self._has_one_scale)
        order = StoredTensor(f"{linear}.weight_g_idx", (inputs,), (slice(0, inputs),), ("I32", "I64"),
                             is_optional=True)
        shape = StoredTensor(f"{linear}.weight_shape", (2,), (slice(0, 2),), ("I64", "I32"), is_optional=True)
        return weight, scales, order, shape, *(() if self.symmetric else (zeros,))

    def decode(self, tensors: Sequence[Tensor], part: LinearPart) -> CodedWeight:
        weight, scales, _, shape, *zero_points = tensors
        if shape.numel() and shape.tolist() != [part.out_features, part.in_features]:
            raise ValueError(f"weight_shape: {shape.tolist()}, expected {[part.out_features, part.in_features]}")
        start, codes = part.columns.start, weight.view(torch.uint8) ^ 128 if not self._is_packed else None
        if codes is None:
            start = units(part.columns, per_word(self.bits)).start * per_word(self.bits)
            codes = codes_of_words(weight, self.bits)[:, : part.in_features - start]
        elif self.bits == 4:
            codes = self._halves(codes)
        order = self.order(tensors, part)
        codes = codes if order is None else codes[:, order]
        zeros, zero = self._zeros(zero_points[0], part) if zero_points else (None, 2 ** (self.bits - 1))
        return CodedWeight(codes.contiguous(), self.bits, self.group or part.in_features,
                           self._of_outputs(finite("weight_scale", scales), part), zero=zero, zeros=zeros, start=start)

    def order(self, tensors: Sequence[Tensor], part: LinearPart) -> Tensor | None:
        groups_of_inputs = tensors[2]
        is_left_out = bool((groups_of_inputs == -1).any())
        return None if is_left_out else input_order("weight_g_idx", groups_of_inputs, part, self.group)

    def _halves(self, codes: Tensor) -> Tensor:
        """Returns numbers from -8 to 7 that are stored in 8 bits as codes of 4."""
        if codes.numel() and not 120 <= int(codes.min()) <= int(codes.max()) < 136:
            raise ValueError(f"weight: numbers from {int(codes.min()) - 128} to {int(codes.max()) - 128}, expected "
                             "from -8 to 7 in 4 bits")
        return codes - 120

    def _zeros(self, points: Tensor, part: LinearPart) -> tuple[Tensor | None, int]:
        """Returns the zero of each group, or that of all of them."""
        if self._is_packed:
            per = per_word(self.bits)
            zeros = within(codes_of_words(points.t(), self.bits).t(), part.rows, per).short().contiguous()
        else:
            zeros = self._of_outputs(points.short() + 2 ** (self.bits - 1), part)
        if zeros.numel() and not 0 <= int(zeros.min()) <= int(zeros.max()) < 2**self.bits:
            raise ValueError(f"weight_zero_point: beyond the numbers of {self.bits} bits")
        zero = one_zero(zeros)
        return (zeros, 0) if zero is None else (None, zero)

    def _of_outputs(self, numbers: Tensor, part: LinearPart) -> Tensor:
        if not self._has_one_scale:
            return numbers
        if numbers.numel() != 1:
            raise ValueError(f"weight_scale: {numbers.numel()} numbers, expected 1")
        return numbers.reshape(1, 1).repeat(part.rows.stop - part.rows.start, 1)
