"""Computes the feed-forward half of a block that has a mixture of experts in one call."""

import ctypes
from dataclasses import dataclass, field

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.experts import Experts
from penstock.kernels.experts.cpu import Compiled
from penstock.kernels.linear import PackedWeight
from penstock.kernels.native import DTYPES, address, dtype_of
from penstock.kernels.route.form import RouteForm


@dataclass(frozen=True, slots=True)
class MixtureLayer:
    """Holds the weights of one layer; a call runs rms_norm, linear, route and experts. C is the width, E the number of
    experts to choose from."""

    norm: Tensor  # [C]
    eps: float
    router: PackedWeight  # [E, C]
    router_bias: Tensor | None
    choice_bias: Tensor | None  # [E], float32
    form: RouteForm
    experts: Experts  # E, behind the shared one, if there is one
    has_shared: bool
    shared_gate: PackedWeight | None  # [1, C]: the sigmoid of its output is the shared expert's weight, which else is 1
    _struct: ctypes.Structure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises ValueError for shapes that do not fit together, and for experts that are not compiled."""
        op, width, count = "MixtureLayer", self.width, self.router.out_features
        check_tensor(op, "norm", self.norm, (width,), *FLOATS)
        if self.router_bias is not None:
            check_tensor(op, "router_bias", self.router_bias, (count,), *FLOATS)
        if self.choice_bias is not None:
            check_tensor(op, "choice_bias", self.choice_bias, (count,), torch.float32)
        first, last = self.experts.gate_up[0], self.experts.down[0]
        found = [len(self.experts.down), first.in_features, last.out_features]
        if found != [count + self.has_shared, width, width]:
            raise ValueError(f"{op}: experts, their inputs and outputs are {found}, expected "
                             f"{[count + self.has_shared, width, width]}")
        if not isinstance(self.experts.prepared, Compiled):
            raise ValueError(f"{op}: the compiled kernels do not read the experts' weights")
        object.__setattr__(self, "_struct", self._structure(self.experts.prepared))

    def __call__(self, x: Tensor, delta: Tensor | None, partial: bool) -> tuple[Tensor, Tensor]:
        """Returns (total, out): total = x + delta, or x; out = what the experts make of the norm of total.

        x, delta  [T, C]  float32, bfloat16 or float16, the same; total is too
        out       [T, C]  of the dtype of x; if `partial`, float32 sums, as of `experts`

        Raises ValueError for shapes or dtypes that do not fit together.
        """
        op = "MixtureLayer"
        check_axes(op, "x", x, "T, C")
        shape = (x.shape[0], self.width)
        check_tensor(op, "x", x, shape, *FLOATS)
        if delta is not None:
            check_tensor(op, "delta", delta, shape, x.dtype)
        total = x if delta is None else torch.empty_like(x)
        out = torch.empty(shape, dtype=torch.float32 if partial else x.dtype)
        native.library.mixture_layer(
            ctypes.addressof(self._struct), DTYPES[x.dtype], x.data_ptr(), address(delta), total.data_ptr(),
            out.data_ptr(), partial, shape[0])
        return total, out

    @property
    def width(self) -> int:
        return self.router.in_features

    @property
    def address(self) -> int:
        """Returns where csrc/structures.h's struct lies for as long as the layer lives."""
        return ctypes.addressof(self._struct)

    def _structure(self, experts: Compiled) -> ctypes.Structure:
        form, gate = self.form, self.shared_gate
        return native.structure("MixtureLayer")(
            width=self.width, eps=self.eps, norm=address(self.norm), norm_dtype=dtype_of(self.norm),
            router=address(self.router.compiled), router_bias=address(self.router_bias),
            router_bias_dtype=dtype_of(self.router_bias), choice_bias=address(self.choice_bias),
            scoring=form.scoring.number, top_k=form.top_k, is_normalised=form.is_normalised, scale=form.scale,
            groups=form.num_groups, top_groups=form.top_groups, group_best=form.group_best, jitter=form.jitter,
            has_shared=self.has_shared, shared_gate=None if gate is None else address(gate.compiled),
            experts=ctypes.addressof(experts.struct))
