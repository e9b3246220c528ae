"""The attention half of a decoder's block: grouped-query attention (Ainslie et al. 2023) behind a norm."""

import importlib
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.linear import DenseWeight, PackedWeight

_implementation = dispatch.choose("attention_layer")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Where the T tokens of a step belong, S sequences one after the other. All as `kv_write` and `paged_attention`
    want them."""

    positions: Tensor  # int64 [T]
    slots: Tensor  # int64 [T]
    tables: Tensor  # int32 [S, max_blocks]
    starts: Tensor  # int32 [S]
    counts: Tensor  # int32 [S]
    is_decode: bool = False  # known to be one token for each sequence, which saves a GPU a look at the counts
    prepared: Any = field(init=False, repr=False, compare=False)
    """What the implementation makes of it, once for all layers."""

    def __post_init__(self) -> None:
        op, num_sequences = "Tokens", len(self.starts)
        check_tensor(op, "positions", self.positions, (len(self.slots),), torch.int64)
        check_tensor(op, "slots", self.slots, (len(self.slots),), torch.int64)
        check_axes(op, "tables", self.tables, "S, max_blocks")
        check_tensor(op, "tables", self.tables, (num_sequences, self.tables.shape[1]), torch.int32)
        check_tensor(op, "starts", self.starts, (num_sequences,), torch.int32)
        check_tensor(op, "counts", self.counts, (num_sequences,), torch.int32)
        object.__setattr__(self, "prepared", _implementation.prepare_tokens(self))


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """The weights of one layer, and what else it is made of. C is the width; heads and KV heads have D dimensions."""

    norm: Tensor  # [C]
    eps: float  # of all norms
    qkv: PackedWeight  # [(heads + 2 * KV heads) * D, C]: of q, k and v, one below the other
    qkv_bias: Tensor | None
    head_norms: tuple[Tensor, Tensor] | None  # [D] for each head of q, and of k
    cos: Tensor  # float32 [P, R / 2], as `rope` wants them
    sin: Tensor
    output: PackedWeight  # [C, heads * D]
    output_bias: Tensor | None
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int
    prepared: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises ValueError for shapes that do not fit together."""
        op, width, head_dim = "AttentionWeights", self.qkv.in_features, self.head_dim
        check_tensor(op, "norm", self.norm, (width,), *FLOATS)
        for name, norm in zip(("q_norm", "k_norm"), self.head_norms or (), strict=False):
            check_tensor(op, name, norm, (head_dim,), *FLOATS)
        outputs = (self.num_heads + 2 * self.num_kv_heads) * head_dim
        for name, packed, shape in (("qkv", self.qkv, (outputs, width)),
                                    ("output", self.output, (width, self.num_heads * head_dim))):
            if (packed.out_features, packed.in_features) != shape:
                raise ValueError(f"{op}: {name} is {[packed.out_features, packed.in_features]}, expected {list(shape)}")
        for name, bias, length in (("qkv_bias", self.qkv_bias, outputs), ("output_bias", self.output_bias, width)):
            if bias is not None:
                check_tensor(op, name, bias, (length,), *FLOATS)
        check_tensor(op, "cos", self.cos, self.cos.shape, torch.float32)
        check_tensor(op, "sin", self.sin, self.cos.shape, torch.float32)
        object.__setattr__(self, "prepared", _implementation_of(self).prepare_weights(self))


def attention_layer(
    weights: AttentionWeights, x: Tensor, delta: Tensor | None, tokens: Tokens, cache: KvCache, partial: bool = False
) -> tuple[Tensor, Tensor]:
    """(total, out): total = x + delta, or x; out = attention of the norm of total, by the output's weight.

    x, delta  [T, C]  float32, bfloat16 or float16, the same; total is too
    out       [T, C]  of the dtype of x; if `partial`, float32 sums without bias, as of `linear`

    Writes the tokens' K and V into the cache, then attends to what the cache holds. The bits are those of the ops
    rms_norm, linear, rope, kv_write and paged_attention one after the other, which is what reference.py does. Raises
    ValueError for shapes or dtypes that do not fit together.
    """
    op, shape = "attention_layer", (len(tokens.positions), weights.qkv.in_features)
    check_tensor(op, "x", x, shape, *FLOATS)
    if delta is not None:
        check_tensor(op, "delta", delta, shape, x.dtype)
    implementation = _implementation_of(weights)
    result: tuple[Tensor, Tensor] = implementation.attention_layer(weights, x, delta, tokens, cache, partial)
    return result


def _implementation_of(weights: AttentionWeights) -> ModuleType:
    """Returns what computes this layer: its ops one by one, if they have to choose by the format of a weight."""
    is_dense = isinstance(weights.qkv, DenseWeight) and isinstance(weights.output, DenseWeight)
    return _implementation if is_dense else importlib.import_module("penstock.kernels.attention_layer.reference")
