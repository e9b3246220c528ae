"""Numbers of 4 bits that share powers of two (OCP Microscaling Formats, version 1.0)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.shard.weights.coded import CodedFormat
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.packed_codes import low_then_high, num_units, units
from penstock.shard.weights.stored import StoredTensor

GROUP = 32
LEVELS = torch.tensor([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=torch.float32)
"""Twice the numbers of E2M1, so that they are whole."""
BIAS, NOT_A_NUMBER = 127, 255            # of E8M0


class Mxfp4(CodedFormat):
    """Codes uint8 [N, K / 2], the first of two inputs in the low bits, and exponents uint8 [N, K / 32].

    As compressed-tensors names and shapes them, or by `blocks` as they lie in checkpoints of transformers: codes
    [N, K / 32, 16].
    """

    def __init__(self, activations: Activations, codes: str, exponents: str, has_blocks: bool) -> None:
        """codes, exponents: what follows the linear's name in those of the tensors."""
        super().__init__(activations)
        self._codes, self._exponents, self._has_blocks = codes, exponents, has_blocks

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        outputs, num_groups, own = part.out_features, num_units(part.in_features, GROUP), units(part.columns, GROUP)
        half, (codes_name, exponents_name) = GROUP // 2, self._names(linear, part)
        shape, slices = part.place.leading
        codes = StoredTensor(codes_name, (*shape, outputs, num_groups * half),
                             (*slices, part.rows, slice(own.start * half, own.stop * half)), ("U8",))
        if self._has_blocks:
            codes = StoredTensor(codes.name, (*shape, outputs, num_groups, half),
                                 (*slices, part.rows, own, slice(0, half)), ("U8",))
        return codes, StoredTensor(exponents_name, (*shape, outputs, num_groups), (*slices, part.rows, own),
                                   ("U8", "F8_E8M0"))

    def _names(self, linear: str, part: LinearPart) -> tuple[str, str]:
        """Returns the names of the codes and of the exponents; gpt-oss's experts have shorter ones."""
        if part.place.is_bare:
            codes, exponents = (name.removeprefix("weight_") for name in (self._codes, self._exponents))
            return f"{linear}_{codes}", f"{linear}_{exponents}"
        return f"{linear}.{self._codes}", f"{linear}.{self._exponents}"

    def decode(self, tensors: Sequence[Tensor], part: LinearPart) -> CodedWeight:
        packed, exponents = (tensor[0] if part.place.count else tensor for tensor in tensors)
        exponents = exponents.view(torch.uint8)
        if bool((exponents == NOT_A_NUMBER).any()):
            raise ValueError(f"{self._exponents}: not a number")
        # Half a power of two, for the levels are twice the numbers.
        scales = torch.ldexp(torch.ones(exponents.shape), exponents.int() - BIAS - 1)
        return CodedWeight(low_then_high(packed.flatten(1)), 4, GROUP, scales, table=LEVELS,
                           start=units(part.columns, GROUP).start * GROUP)
