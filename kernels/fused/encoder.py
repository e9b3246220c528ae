"""Computes all blocks of an encoder in one call."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.activation import Activation
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.checks import FLOATS, check_rotation, check_tensor
from penstock.kernels.full_attention.lengths import check_counts
from penstock.kernels.fused.attention import adapters_address
from penstock.kernels.linear import PackedWeight
from penstock.kernels.native import DTYPES, address, dtype_of


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Holds the arguments of `layer_norm` beside its rows."""

    weight: Tensor  # [1, C]
    bias: Tensor | None
    eps: float


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """Holds the weights of one block: linear, rope, full_attention, linear, and linear, activation, linear, with a norm
    of the residual sum behind each half if it is of post-norm, and before each half if not.

    C is the width; heads and KV heads have D dimensions; I is the inner width.
    """

    attention_norm: LayerNorm | None  # None only where there is nothing to norm before the first block
    qkv: PackedWeight  # [(heads + 2 * KV heads) * D, C]: of q, k and v, one below the other
    qkv_bias: Tensor | None
    rotation: tuple[Tensor, Tensor] | None  # cos and sin, float32 [P, R / 2], as `rope` wants them
    output: PackedWeight  # [C, heads * D]
    output_bias: Tensor | None
    feed_forward_norm: LayerNorm
    gate_up: PackedWeight  # [2 * I, C], or [I, C] without a gate
    gate_up_bias: Tensor | None
    down: PackedWeight  # [C, I]
    down_bias: Tensor | None
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int
    bias: Tensor | None  # as of `full_attention`
    activation: Activation
    is_gated: bool
    is_post_norm: bool
    sites: tuple[int, int, int, int] = (0, 0, 0, 0)  # the numbers of the linears in adapters, in their order
    _struct: ctypes.Structure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises ValueError for shapes that do not fit together."""
        op, width = "EncoderLayer", self.width
        if self.attention_norm is None and self.is_post_norm:
            raise ValueError(f"{op}: a block of post-norm needs both norms")
        for norm in (self.attention_norm, self.feed_forward_norm):
            if norm is not None:
                check_tensor(op, "norm", norm.weight, (1, width), *FLOATS)
                if norm.bias is not None:
                    check_tensor(op, "norm_bias", norm.bias, (1, width), norm.weight.dtype)
        self._check_linears()
        if self.rotation is not None:
            cos, sin = self.rotation
            check_tensor(op, "cos", cos, cos.shape, torch.float32)
            check_tensor(op, "sin", sin, cos.shape, torch.float32)
            check_rotation(op, cos, self.head_dim)
        if self.bias is not None:
            check_tensor(op, "bias", self.bias, (self.num_heads, self.bias.shape[1] | 1), torch.float32)
        object.__setattr__(self, "_struct", self._structure())

    @property
    def width(self) -> int:
        return self.qkv.in_features

    @property
    def address(self) -> int:
        """Returns where csrc/structures.h's struct lies for as long as the layer lives."""
        return ctypes.addressof(self._struct)

    def _check_linears(self) -> None:
        width, inner, heads = self.width, self.down.in_features, self.num_heads + 2 * self.num_kv_heads
        for name, packed, bias, shape in (
                ("qkv", self.qkv, self.qkv_bias, (heads * self.head_dim, width)),
                ("output", self.output, self.output_bias, (width, self.num_heads * self.head_dim)),
                ("gate_up", self.gate_up, self.gate_up_bias, ((1 + self.is_gated) * inner, width)),
                ("down", self.down, self.down_bias, (width, inner))):
            found = packed.out_features, packed.in_features
            if found != shape:
                raise ValueError(f"EncoderLayer: {name} is {list(found)}, expected {list(shape)}")
            if packed.compiled is None:
                raise ValueError(f"EncoderLayer: the compiled kernels do not read the weight of {name}")
            if bias is not None:
                check_tensor("EncoderLayer", f"{name}_bias", bias, shape[:1], *FLOATS)

    def _structure(self) -> ctypes.Structure:
        values: dict[str, object] = {
            "width": self.width, "inner": self.down.in_features, "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads, "head_dim": self.head_dim, "window": self.window, "scale": self.scale,
            "activation": self.activation.number, "is_gated": self.is_gated, "is_post_norm": self.is_post_norm,
            "bias": address(self.bias), "reach": 0 if self.bias is None else self.bias.shape[1] // 2}
        if self.rotation is not None:
            cos, sin = self.rotation
            values |= {"half": cos.shape[1], "cos": address(cos), "sin": address(sin)}
        for name, norm in (("attention", self.attention_norm), ("feed_forward", self.feed_forward_norm)):
            if norm is not None:
                values |= {f"{name}_eps": norm.eps, f"{name}_norm": address(norm.weight),
                           f"{name}_norm_bias": address(norm.bias), f"{name}_norm_dtype": dtype_of(norm.weight)}
        for number, (name, packed, bias) in enumerate((
                ("qkv", self.qkv, self.qkv_bias), ("output", self.output, self.output_bias),
                ("gate_up", self.gate_up, self.gate_up_bias), ("down", self.down, self.down_bias))):
            values |= {name: address(packed.compiled), f"{name}_bias": address(bias),
                       f"{name}_bias_dtype": dtype_of(bias), f"{name}_site": self.sites[number]}
        return native.structure("EncoderLayer")(**values)


class EncoderBlocks:
    """Holds blocks of one width; a call runs one after the other over the whole texts of a step."""

    def __init__(self, layers: Sequence[EncoderLayer]) -> None:
        """Raises ValueError for layers that do not follow one another."""
        widths, orders = {layer.width for layer in layers}, {layer.is_post_norm for layer in layers}
        if len(widths) != 1 or len(orders) != 1:
            raise ValueError(f"EncoderBlocks: layers have the widths {sorted(widths)}, expected one, and one order")
        if any(layer.attention_norm is None for layer in layers[1:]):
            raise ValueError("EncoderBlocks: only the first block may have no norm before attention")
        self._layers = tuple(layers)  # whose memory the addresses are of
        self._width, self._is_post_norm = widths.pop(), orders.pop()
        self._addresses = (ctypes.c_void_p * len(layers))(*(layer.address for layer in layers))

    def __call__(self, x: Tensor, metadata: AttentionMetadata) -> tuple[Tensor, Tensor | None]:
        """Returns (total, delta): the residual stream behind the last block, and what is yet to be added to it; None if
        the blocks are of post-norm.

        x             [T, C]  float32, bfloat16 or float16; is overwritten, and is `total`
        total, delta  [T, C]  of the dtype of x

        Raises ValueError for shapes, dtypes or counts that do not fit together.
        """
        check_tensor("EncoderBlocks", "x", x, (len(metadata.positions), self._width), *FLOATS)
        delta = None if self._is_post_norm else torch.empty_like(x)
        status = ctypes.c_int64()
        native.library.encoder_blocks(
            len(self._layers), ctypes.addressof(self._addresses), DTYPES[x.dtype], len(x),
            metadata.positions.data_ptr(), metadata.counts.data_ptr(), len(metadata.counts), x.data_ptr(),
            address(delta), adapters_address(metadata.adapters), ctypes.addressof(status))
        if status.value:
            check_counts(x, metadata.counts.tolist())
        return x, delta
