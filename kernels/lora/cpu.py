"""Adapters in C++ (csrc/lora.cpp)."""

import ctypes

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.lora.rows import AdapterRows


def shrink(x: Tensor, rows: AdapterRows, site: int) -> Tensor:
    out = torch.empty(len(x), rows.rank(site))
    native.library.lora_shrink(ctypes.addressof(rows.struct), site, native.DTYPES[x.dtype], x.data_ptr(), x.shape[1],
                               out.data_ptr(), out.shape[1])
    return out


def expand(shrunk: Tensor, rows: AdapterRows, site: int, out_features: int) -> Tensor:
    out = torch.empty(len(shrunk), out_features)
    native.library.lora_expand(ctypes.addressof(rows.struct), site, shrunk.data_ptr(), shrunk.shape[1], out.data_ptr(),
                               out_features)
    return out
