"""Computes the attention half of a block in one call."""

import ctypes
from dataclasses import dataclass, field

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.checks import FLOATS, check_rotation, check_tensor
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write.cpu import refuse_slot_mapping
from penstock.kernels.linear import PackedWeight
from penstock.kernels.lora.rows import AdapterRows
from penstock.kernels.native import DTYPES, address, dtype_of
from penstock.kernels.paged_attention.cpu import refuse_tables

PLACE_STATUS = 3  # of csrc/abi.h: an entry of the slot mapping is outside the cache


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """Holds the weights of one layer; a call runs rms_norm, linear, rope, kv_write, paged_attention and linear.

    C is the width; heads and KV heads have D dimensions.
    """

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
    qkv_site: int = 0  # the numbers of the linears in adapters
    output_site: int = 0
    _struct: ctypes.Structure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises ValueError for shapes that do not fit together."""
        self._check_norms()
        self._check_linears()
        check_tensor("AttentionLayer", "cos", self.cos, self.cos.shape, torch.float32)
        check_tensor("AttentionLayer", "sin", self.sin, self.cos.shape, torch.float32)
        check_rotation("AttentionLayer", self.cos, self.head_dim)
        object.__setattr__(self, "_struct", self._structure())

    def __call__(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: KvCache, partial: bool,
        shrunk: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns (total, out): total = x + delta, or x; out = attention of the norm of total, by the output's weight.

        x, delta  [T, C]  float32, bfloat16 or float16, the same; total is too
        out       [T, C]  of the dtype of x; if `partial`, float32 sums without bias, as of `linear`
        shrunk            where the output's sums of adapters go if `partial`, as of `shrink`; None if they have none

        Raises ValueError for shapes or dtypes that do not fit together, and for tokens outside the cache.
        """
        op, shape = "AttentionLayer", (len(metadata.positions), self.qkv.in_features)
        check_tensor(op, "x", x, shape, *FLOATS)
        if delta is not None:
            check_tensor(op, "delta", delta, shape, x.dtype)
        total = x if delta is None else torch.empty_like(x)
        out = torch.empty(shape, dtype=torch.float32 if partial else x.dtype)
        data, status = cache.data, ctypes.c_int64()
        native.library.attention_layer(
            ctypes.addressof(self._struct), ctypes.addressof(metadata.struct), DTYPES[x.dtype], data.data_ptr(),
            DTYPES[cache.dtype], data.shape[0], cache.block_size, x.data_ptr(), address(delta), total.data_ptr(),
            out.data_ptr(), partial, adapters_address(metadata.adapters), address(shrunk), ctypes.addressof(status))
        refuse(status.value, x, metadata, cache)
        return total, out

    @property
    def width(self) -> int:
        return self.qkv.in_features

    @property
    def address(self) -> int:
        """Returns where csrc/structures.h's struct lies for as long as the layer lives."""
        return ctypes.addressof(self._struct)

    def _check_norms(self) -> None:
        op = "AttentionLayer"
        check_tensor(op, "norm", self.norm, (self.qkv.in_features,), *FLOATS)
        for name, norm in zip(("q_norm", "k_norm"), self.head_norms or (), strict=False):
            check_tensor(op, name, norm, (self.head_dim,), *FLOATS)

    def _check_linears(self) -> None:
        op, width, outputs = "AttentionLayer", self.qkv.in_features, self.num_heads + 2 * self.num_kv_heads
        for name, packed, bias, shape in (
                ("qkv", self.qkv, self.qkv_bias, (outputs * self.head_dim, width)),
                ("output", self.output, self.output_bias, (width, self.num_heads * self.head_dim))):
            if (packed.out_features, packed.in_features) != shape:
                raise ValueError(f"{op}: {name} is {[packed.out_features, packed.in_features]}, expected {list(shape)}")
            if bias is not None:
                check_tensor(op, f"{name}_bias", bias, shape[:1], *FLOATS)

    def _structure(self) -> ctypes.Structure:
        q_norm, k_norm = self.head_norms or (None, None)
        return native.structure("AttentionLayer")(
            width=self.qkv.in_features, num_heads=self.num_heads, num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim, half=self.cos.shape[1], window=self.window, scale=self.scale, eps=self.eps,
            norm=address(self.norm), norm_dtype=dtype_of(self.norm), qkv=address(self.qkv.compiled),
            qkv_bias=address(self.qkv_bias), qkv_bias_dtype=dtype_of(self.qkv_bias),
            q_norm=address(q_norm), q_norm_dtype=dtype_of(q_norm),
            k_norm=address(k_norm), k_norm_dtype=dtype_of(k_norm),
            cos=address(self.cos), sin=address(self.sin), output=address(self.output.compiled),
            output_bias=address(self.output_bias), output_bias_dtype=dtype_of(self.output_bias),
            qkv_site=self.qkv_site, output_site=self.output_site)


def adapters_address(adapters: AdapterRows | None) -> int | None:
    return None if adapters is None else ctypes.addressof(adapters.struct)


def refuse(status: int, x: Tensor, metadata: AttentionMetadata, cache: KvCache) -> None:
    """Raises the ValueError that a status other than 0 stands for."""
    if status == PLACE_STATUS:
        refuse_slot_mapping(metadata.slot_mapping, cache)
    if status:
        refuse_tables(x, cache, metadata.tables, metadata.starts, metadata.counts)
