"""Computes all blocks of a decoder in one call."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.checks import FLOATS, check_tensor
from penstock.kernels.fused.attention import AttentionLayer, adapters_address, refuse
from penstock.kernels.fused.mixture import MixtureLayer
from penstock.kernels.fused.mlp import MlpLayer
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.native import DTYPES


class Blocks:
    """Holds the two halves of each block; a call runs one half after the other. C is the width of all."""

    def __init__(self, attention: Sequence[AttentionLayer], feed_forward: Sequence[MlpLayer | MixtureLayer]) -> None:
        """Raises ValueError for halves that do not make blocks of one width."""
        if len(attention) != len(feed_forward):
            raise ValueError(f"Blocks: {len(attention)} attention layers, {len(feed_forward)} feed-forward layers")
        widths = {layer.width for layer in attention} | {layer.width for layer in feed_forward}
        if len(widths) != 1:
            raise ValueError(f"Blocks: layers have the widths {sorted(widths)}, expected one")
        self._layers = (*attention, *feed_forward)  # whose memory the addresses are of
        self._width = widths.pop()
        self._count = len(attention)
        self._attention = _addresses([layer.address for layer in attention])
        self._mlp, self._mixtures = (
            _addresses([layer.address if isinstance(layer, kind) else None for layer in feed_forward])
            for kind in (MlpLayer, MixtureLayer))

    def __call__(
        self, x: Tensor, metadata: AttentionMetadata, caches: Sequence[KvCache], before: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns (total, delta): the residual stream behind the last block, and what is yet to be added to it.

        x             [T, C]  float32, bfloat16 or float16; is overwritten, and is `total`
        total, delta  [T, C]  of the dtype of x
        caches                one for each block, all of one size and dtype
        before        [T, C]  of the dtype of x: what is yet to be added to x; is overwritten, and is `delta`

        Raises ValueError for shapes or dtypes that do not fit together, and for tokens outside the caches.
        """
        check_tensor("Blocks", "x", x, (len(metadata.positions), self._width), *FLOATS)
        first = caches[0]
        if len(caches) != self._count or any(cache.data.shape != first.data.shape for cache in caches):
            raise ValueError(f"Blocks: caches are {[list(cache.data.shape) for cache in caches]}, expected "
                             f"{self._count} of one size")
        if before is not None:
            check_tensor("Blocks", "before", before, (len(metadata.positions), self._width), x.dtype)
        delta, status = torch.empty_like(x) if before is None else before, ctypes.c_int64()
        memories = _addresses([cache.data.data_ptr() for cache in caches])
        native.library.blocks(
            self._count, ctypes.addressof(self._attention), ctypes.addressof(self._mlp),
            ctypes.addressof(self._mixtures), ctypes.addressof(metadata.struct), DTYPES[x.dtype],
            ctypes.addressof(memories), DTYPES[first.dtype], first.data.shape[0], first.block_size, x.data_ptr(),
            delta.data_ptr(), before is not None, adapters_address(metadata.adapters), ctypes.addressof(status))
        refuse(status.value, x, metadata, first)
        return x, delta


def _addresses(values: Sequence[int | None]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(values))(*values)
