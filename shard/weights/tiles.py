"""The formats whose weights the processor's tiles multiply."""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight
from penstock.kernels.linear.tiled import SCALED, pack_tiled_codes
from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_weight import stack
from penstock.shard.weights.dense import DENSE, DENSE_IN_TILES
from penstock.shard.weights.format import LinearPart, WeightFormat
from penstock.shard.weights.rounded import Rounded

BITS = 8


class RoundedInTiles(Rounded):
    """Weights of 8 bits, where whole numbers of `SCALED` inputs share a scale."""

    def pack(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart], segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        coded = stack([own for own, _ in self._decoded(linears, parts)])
        if coded.start % SCALED or coded.in_features % (SCALED * segments):
            return super().pack(linears, parts, segments, dtype)
        firsts = coded.start + torch.arange(0, coded.in_features, SCALED)
        scales = coded.group_scales()[:, firsts // coded.group - coded.start // coded.group].contiguous()
        return pack_tiled_codes(coded.levels().to(torch.int8), scales, segments, dtype)


def in_tiles(format_: WeightFormat) -> WeightFormat:
    """Returns the format that multiplies the same weights in tiles, or the same one if there is none."""
    if format_ is DENSE:
        return DENSE_IN_TILES
    if isinstance(format_, Rounded) and format_.bits == BITS and format_.activations is Activations.FLOAT:
        is_whole = not format_.group or format_.group % SCALED == 0
        return RoundedInTiles(format_.activations, BITS, format_.group) if is_whole else format_
    return format_
