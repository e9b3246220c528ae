"""A mixture of experts in one call of C++ (csrc/experts.cpp)."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.experts import reference
from penstock.kernels.experts.weights import ExpertWeights
from penstock.kernels.linear import PackedWeight
from penstock.kernels.native import DTYPES, address, dtype_of


@dataclass(frozen=True, slots=True)
class Compiled:
    """The struct of csrc/abi.h, and the arrays that it points to."""

    struct: ctypes.Structure
    arrays: tuple[ctypes.Array[ctypes.c_void_p] | ctypes.Array[ctypes.c_int64], ...]


def prepare(layer: ExpertWeights) -> object:
    """Returns the struct that the compiled kernel reads; None if it cannot read all of the weights."""
    gate_up, down = _addresses(layer.gate_up), _addresses(layer.down)
    if gate_up is None or down is None:
        return None
    inner = (ctypes.c_int64 * len(layer.down))(*(each.in_features for each in layer.down))
    struct = native.structure("Experts")(
        count=len(layer.down), width=layer.gate_up[0].in_features, outputs=layer.down[0].out_features,
        activation=layer.activation.number, gate_up=ctypes.addressof(gate_up), inner=ctypes.addressof(inner),
        down=ctypes.addressof(down), bias=address(layer.gate_up_bias), bias_dtype=dtype_of(layer.gate_up_bias))
    return Compiled(struct, (gate_up, inner, down))


def experts(x: Tensor, ids: Tensor, weights: Tensor, layer: ExpertWeights, out_dtype: torch.dtype) -> Tensor:
    compiled = layer.prepared
    if not isinstance(compiled, Compiled):
        return reference.experts(x, ids, weights, layer, out_dtype)
    out = torch.empty(len(x), layer.down[0].out_features, dtype=out_dtype)
    native.library.experts(ctypes.addressof(compiled.struct), x.data_ptr(), DTYPES[x.dtype], ids.data_ptr(),
                           weights.data_ptr(), *ids.shape, out.data_ptr(), DTYPES[out_dtype])
    return out


def _addresses(weights: Sequence[PackedWeight]) -> ctypes.Array[ctypes.c_void_p] | None:
    found = [address(weight.compiled) for weight in weights]
    return None if None in found else (ctypes.c_void_p * len(found))(*found)
