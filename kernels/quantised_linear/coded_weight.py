"""A weight as small whole numbers, with what makes numbers of them: the one form that all formats of files come in."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from penstock.kernels.checks import check_axes, check_tensor

BITS = (4, 8)


@dataclass(frozen=True, slots=True)
class CodedWeight:
    """The codes of a weight [N, K], and the value of each: level(code) * scale + minimum, in float32, in this order.

    A group is the inputs from one multiple of `group` to the next, where `start` is the number of the first input of
    this weight in the whole: G groups begin within [start, start + K) or before it. A span is likewise the inputs that
    share a scale of scales. With `factors` there are S spans, and scale = scales * factors, minimum = minima * offsets.
    """

    codes: Tensor                        # uint8 [N, K], each below 2 ** bits
    bits: int                            # 4 or 8, as the kernels hold them
    group: int
    scales: Tensor                       # float32 [N, G], or [N, S] with factors
    zero: int = 0                        # level(code) = code - zero, where there are neither zeros nor a table
    zeros: Tensor | None = None          # int16 [N, G], from 0 to 255: level(code) = code - zeros
    table: Tensor | None = None          # float32 [16], for 4 bits: level(code) = table[code]
    minima: Tensor | None = None         # float32, of the shape of scales
    factors: Tensor | None = None        # int16 [N, G], from -128 to 255
    offsets: Tensor | None = None        # int16 [N, G], from 0 to 255; there are both minima and factors
    span: int = 0                        # inputs that share a scale of scales: a multiple of group; 0 without factors
    start: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError for shapes, dtypes and sizes that do not fit together."""
        op = "CodedWeight"
        check_axes(op, "codes", self.codes, "N, K")
        check_tensor(op, "codes", self.codes, self.codes.shape, torch.uint8)
        if self.bits not in BITS:
            raise ValueError(f"{op}: {self.bits} bits, expected 4 or 8")
        if self.group < 1 or self.start < 0:
            raise ValueError(f"{op}: group {self.group} and start {self.start}, expected at least 1 and 0")
        if (self.span > 0) != (self.factors is not None) or self.span % self.group:
            raise ValueError(f"{op}: span {self.span} {'with' if self.factors is not None else 'without'} factors, "
                             f"expected a multiple of group {self.group} with factors, else 0")
        if (self.offsets is not None) != (self.factors is not None and self.minima is not None):
            raise ValueError(f"{op}: offsets are to be where minima and factors are, and nowhere else")
        if self.table is not None and (self.zeros is not None or self.bits != BITS[0]):
            raise ValueError(f"{op}: a table with {self.bits} bits and {'' if self.zeros is not None else 'no '}zeros, "
                             "expected 4 bits and no zeros")
        outputs, groups = self.out_features, self.num_groups
        coarse = outputs, num_groups(self.start, self.in_features, self.span or self.group)
        check_tensor(op, "scales", self.scales, coarse, torch.float32)
        for name, tensor, shape, dtype in (
                ("minima", self.minima, coarse, torch.float32), ("zeros", self.zeros, (outputs, groups), torch.int16),
                ("factors", self.factors, (outputs, groups), torch.int16),
                ("offsets", self.offsets, (outputs, groups), torch.int16),
                ("table", self.table, (2**BITS[0],), torch.float32)):
            if tensor is not None:
                check_tensor(op, name, tensor, shape, dtype)

    @property
    def out_features(self) -> int:
        return self.codes.shape[0]

    @property
    def in_features(self) -> int:
        return self.codes.shape[1]

    @property
    def form(self) -> tuple[object, ...]:
        """Returns all but the outputs' own numbers: weights of one form can be stacked."""
        has = tuple(getattr(self, name) is not None for name in ("zeros", "minima", "factors", "offsets"))
        table = None if self.table is None else tuple(self.table.tolist())
        return self.bits, self.group, self.span, self.start, self.in_features, self.zero, table, has

    @property
    def num_groups(self) -> int:
        return num_groups(self.start, self.in_features, self.group)

    def rows(self, ids: Tensor) -> "CodedWeight":
        """Returns the outputs of these numbers, int64 [R], in their order."""
        changed: dict[str, Any] = {name: tensor[ids] for name, tensor in self.of_outputs().items()}
        return replace(self, **changed)

    def inputs(self, columns: slice) -> "CodedWeight":
        """Returns the inputs [columns.start, columns.stop), as they are counted in the whole. Raises ValueError."""
        first, last = columns.start, columns.stop
        if not self.start <= first < last <= self.start + self.in_features:
            raise ValueError(f"CodedWeight.inputs: [{first}, {last}), expected within [{self.start}, "
                             f"{self.start + self.in_features})")

        def cut(name: str, tensor: Tensor) -> Tensor:
            size = 1 if name == "codes" else self.span if self.span and name in ("scales", "minima") else self.group
            begin = first // size - self.start // size
            return tensor[:, begin : begin + num_groups(first, last - first, size)].contiguous()

        changed: dict[str, Any] = {name: cut(name, tensor) for name, tensor in self.of_outputs().items()}
        return replace(self, start=first, **changed)

    def levels(self) -> Tensor:
        """Returns the level of each code, float32 [N, K]."""
        if self.table is not None:
            return self.table[self.codes.long()]
        zeros = self.zero if self.zeros is None else self._of_inputs(self.zeros, self.group)
        return self.codes.float() - zeros

    def group_scales(self) -> Tensor:
        """Returns the scale of each group, float32 [N, G]."""
        return self.scales if self.factors is None else self._of_groups(self.scales) * self.factors

    def group_minima(self) -> Tensor | None:
        """Returns the minimum of each group, float32 [N, G], or None if all are 0."""
        if self.minima is None or self.offsets is None:
            return self.minima
        return self._of_groups(self.minima) * self.offsets

    def dequantise(self) -> Tensor:
        """Returns the values, float32 [N, K]."""
        values = self.levels() * self._of_inputs(self.group_scales(), self.group)
        minima = self.group_minima()
        return values if minima is None else values + self._of_inputs(minima, self.group)

    def of_outputs(self) -> dict[str, Any]:
        """Returns the tensors that have a row for each output, by their names."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Tensor) and value.dim() == 2}

    def _of_inputs(self, of_groups: Tensor, group: int) -> Tensor:
        return of_groups[:, group_of_inputs(self.start, self.in_features, group).to(of_groups.device)]

    def _of_groups(self, of_spans: Tensor) -> Tensor:
        """Gives each group what belongs to its span."""
        first = self.start // self.group
        groups = torch.arange(first, first + self.num_groups, device=of_spans.device) * self.group
        return of_spans[:, groups // self.span - self.start // self.span]


def stack(weights: Sequence[CodedWeight]) -> CodedWeight:
    """Puts coded weights of one form and the same inputs one below the other. Raises ValueError if they are not."""
    first = weights[0]
    if len(weights) == 1:
        return first
    if any(each.form != first.form for each in weights):
        raise ValueError(f"stack: coded weights of different forms: {[each.form for each in weights]}")
    changed: dict[str, Any] = {name: torch.cat([getattr(each, name) for each in weights])
                               for name in first.of_outputs()}
    return replace(first, **changed)


def num_groups(start: int, inputs: int, group: int) -> int:
    """Returns how many groups the inputs [start, start + inputs) lie in."""
    return -(-(start + inputs) // group) - start // group if inputs else 0


def group_of_inputs(start: int, inputs: int, group: int) -> Tensor:
    """Returns the group of each of the inputs [start, start + inputs), counted from the first of these groups."""
    return torch.arange(start, start + inputs) // group - start // group
