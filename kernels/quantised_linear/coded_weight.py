"""A weight as small whole numbers, with what makes numbers of them: the one form that all formats of files come in."""

from dataclasses import dataclass, fields

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
    def num_groups(self) -> int:
        return num_groups(self.start, self.in_features, self.group)

    def rows(self, ids: Tensor) -> "CodedWeight":
        """Returns the outputs of these numbers, int64 [R], in their order."""
        def select(value: object) -> object:
            return value[ids] if isinstance(value, Tensor) and value.dim() == 2 else value

        return CodedWeight(**{field.name: select(getattr(self, field.name)) for field in fields(self)})

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

    def _of_inputs(self, of_groups: Tensor, group: int) -> Tensor:
        return of_groups[:, group_of_inputs(self.start, self.in_features, group).to(of_groups.device)]

    def _of_groups(self, of_spans: Tensor) -> Tensor:
        """Gives each group what belongs to its span."""
        first = self.start // self.group
        groups = torch.arange(first, first + self.num_groups, device=of_spans.device) * self.group
        return of_spans[:, groups // self.span - self.start // self.span]


def num_groups(start: int, inputs: int, group: int) -> int:
    """Returns how many groups the inputs [start, start + inputs) lie in."""
    return -(-(start + inputs) // group) - start // group if inputs else 0


def group_of_inputs(start: int, inputs: int, group: int) -> Tensor:
    """Returns the group of each of the inputs [start, start + inputs), counted from the first of these groups."""
    return torch.arange(start, start + inputs) // group - start // group
