"""Adapters as the kernels want them: one piece of memory for each, and a table of what lies where.

All kernel sets have one layout. A [R, K] lies in panels of 16 of its outputs, which are adjacent for each k, B [N, r]
in panels of 16 outputs, which are adjacent for each of the r: a lane of a register is an output. In bfloat16 two
neighbouring k of an output are adjacent, as the processor's instruction for dot products wants them. Ranks are padded
with zeros to whole panels, which add nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.native import DTYPES

PANEL = 16
MAX_SEGMENTS = 8
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Part:
    """Some outputs of a linear, and what an adapter has for them. `factor` is the number of their A; None: nothing."""

    out_features: int
    factor: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of what an adapter has for one linear, on one rank.

    ranks     of each A, as many as the linear has different ones: q, k and v may have three
    segments  of the inputs, which are summed apart; a power of two up to 8
    width     inputs of each segment but the last that has any, which may have less, as the others have none
    parts     of the outputs, one below the other
    """

    ranks: tuple[int, ...]
    scales: tuple[float, ...]
    in_features: int
    segments: int
    width: int
    parts: tuple[Part, ...]

    @property
    def out_features(self) -> int:
        return sum(part.out_features for part in self.parts)

    @property
    def padded_ranks(self) -> list[int]:
        return [-(-rank // PANEL) * PANEL for rank in self.ranks]

    def panels(self) -> list[tuple[int, int, int]]:
        """Returns for each 16 outputs the first rank that they read, how many, and where their numbers begin in B.

        Where two parts meet within a panel it reads all ranks of both, and has zeros for those of the other part.
        """
        firsts = [sum(self.padded_ranks[:index]) for index in range(len(self.ranks))]
        spans: list[list[tuple[int, int]]] = [[] for _ in range(-(-self.out_features // PANEL))]
        begin = 0
        for part in self.parts:
            end = begin + part.out_features
            if part.factor is not None and end > begin:
                first = firsts[part.factor]
                for panel in range(begin // PANEL, -(-end // PANEL)):
                    spans[panel].append((first, first + self.padded_ranks[part.factor]))
            begin = end
        found, offset = [], 0
        for span in spans:
            first, last = min((a for a, _ in span), default=0), max((b for _, b in span), default=0)
            found.append((first, last - first, offset))
            offset += (last - first) * PANEL
        return found


@dataclass(frozen=True, slots=True)
class LoraWeight:
    """The weights of an adapter for one linear, in its memory."""

    in_features: int
    out_features: int
    segments: int
    width: int
    rank: int                            # of all A together, each padded
    a: Tensor                            # [rank / 16, segments, steps, 16, depth]
    b: Tensor                            # [...]: panels, one behind the other
    panels: Tensor                       # int64 [N / 16, 3]
    scales: Tensor                       # float32 [rank]


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """An adapter on one rank: its weights by the numbers of the model's linears, None where it has nothing."""

    weights: tuple[LoraWeight | None, ...]
    table: Tensor                        # int64 [sites, fields of csrc/structures.h's LoraLinear]
    num_bytes: int


def packed_bytes(shapes: Sequence[Shape | None], dtype: torch.dtype) -> int:
    """Returns how many bytes an adapter of these shapes takes."""
    return sum(size for shape in shapes if shape for size, _ in _sizes(shape, dtype))


def pack_adapter(
    shapes: Sequence[Shape | None], dtype: torch.dtype,
    read: Callable[[int], tuple[Sequence[Tensor], Sequence[Tensor | None]]], memory: Tensor,
) -> Adapter:
    """Lays an adapter out in `memory`, uint8 [packed_bytes(...)] at a 64-byte boundary, linear by linear.

    read  returns, for the linear of a number, its A [r, K] in the order of their ranks, and B [N of the part, r] of
          each part, None for those without: in the dtype of the model, on any device

    Each linear is read just before it is packed, in pieces that are small enough for other threads to go on beside it.
    """
    weights: list[LoraWeight | None] = []
    place = 0
    for number, shape in enumerate(shapes):
        if shape is None:
            weights.append(None)
            continue
        tensors = []
        for size, kind in _sizes(shape, dtype):
            tensors.append(memory[place : place + size].view(kind))
            place += size
        weight = _weight(shape, *tensors)
        _fill(weight, shape, *read(number))
        weights.append(weight)
    table = torch.tensor([_fields(weight) for weight in weights], dtype=torch.int64)
    return Adapter(tuple(weights), table.to(memory.device), memory.nbytes)


def _sizes(shape: Shape, dtype: torch.dtype) -> Iterator[tuple[int, torch.dtype]]:
    """Yields the bytes and dtype of a, b, panels and scales."""
    depth = depth_of(dtype)
    rank, panels = sum(shape.padded_ranks), shape.panels()
    _, count, offset = panels[-1] if panels else (0, 0, 0)
    steps = -(-shape.width // depth)
    counts = ((rank * shape.segments * steps * depth, dtype), (offset + count * PANEL, dtype),
              (3 * len(panels), torch.int64), (rank, torch.float32))
    for number, kind in counts:
        yield -(-number * kind.itemsize // _ALIGNMENT) * _ALIGNMENT, kind


def depth_of(dtype: torch.dtype) -> int:
    """Returns how many neighbouring k of an output are adjacent."""
    return 2 if dtype == torch.bfloat16 else 1


def _weight(shape: Shape, a: Tensor, b: Tensor, panels: Tensor, scales: Tensor) -> LoraWeight:
    depth, rank, table = depth_of(a.dtype), sum(shape.padded_ranks), shape.panels()
    steps = -(-shape.width // depth)
    a = a[: rank * shape.segments * steps * depth].view(rank // PANEL, shape.segments, steps, PANEL, depth)
    _, count, offset = table[-1] if table else (0, 0, 0)
    panels = panels[: 3 * len(table)].view(len(table), 3)
    panels.copy_(torch.tensor(table, dtype=torch.int64).view(-1, 3))
    return LoraWeight(shape.in_features, shape.out_features, shape.segments, shape.width, rank, a,
                      b[: offset + count * PANEL], panels, scales[:rank])


def _fill(weight: LoraWeight, shape: Shape, a: Sequence[Tensor], b: Sequence[Tensor | None]) -> None:
    weight.a.zero_()
    weight.b.zero_()
    begin = 0
    for own, rank, scale in zip(a, shape.padded_ranks, shape.scales, strict=True):
        _fill_a(weight, own, begin)
        weight.scales[begin : begin + rank] = scale
        begin += rank
    begin = 0
    for part, rows in zip(shape.parts, b, strict=True):
        if part.factor is not None and rows is not None:
            _fill_b(weight, rows, begin, sum(shape.padded_ranks[: part.factor]))
        begin += part.out_features


def _fill_a(weight: LoraWeight, a: Tensor, first: int) -> None:
    """Puts A [r, K] in its place, panel by panel."""
    _, segments, _, _, depth = weight.a.shape
    for begin in range(0, len(a), PANEL):
        panel, own = weight.a[(first + begin) // PANEL], a[begin : begin + PANEL]
        for segment in range(segments):
            part = own[:, segment * weight.width : min((segment + 1) * weight.width, weight.in_features)]
            whole = part.shape[1] // depth
            panel[segment, :whole, : len(own)].copy_(
                part[:, : whole * depth].view(len(own), whole, depth).transpose(0, 1))
            if part.shape[1] > whole * depth:
                panel[segment, whole, : len(own), 0].copy_(part[:, -1])


def _fill_b(weight: LoraWeight, b: Tensor, begin: int, first_rank: int) -> None:
    """Puts B [N, r], whose outputs begin at `begin`, in its place: all panels that it has alone in one copy."""
    depth, rank, end = depth_of(b.dtype), b.shape[1], begin + len(b)
    table = weight.panels.tolist()
    panel = begin // PANEL
    while panel * PANEL < end:
        first, count, offset = table[panel]
        low, high = max(begin, panel * PANEL), min(end, (panel + 1) * PANEL)
        many = 1
        if high - low == PANEL:          # those that follow are laid out alike
            many = (end - low) // PANEL
            many = next((i for i in range(1, many) if table[panel + i] != [first, count, offset + i * count * PANEL]),
                        many)
            high = low + many * PANEL
        lanes = weight.b[offset : offset + many * count * PANEL].view(many, count // depth, PANEL, depth)
        at = first_rank - first
        own = lanes[:, at // depth : at // depth + -(-rank // depth), low - panel * PANEL : (high - 1) % PANEL + 1]
        rows = b[low - begin : high - begin].view(many, -1, rank)
        whole = rank // depth
        own[:, :whole].copy_(rows[:, :, : whole * depth].view(many, rows.shape[1], whole, depth).transpose(1, 2))
        if rank > whole * depth:
            own[:, whole, :, 0].copy_(rows[:, :, -1])
        panel += many


def _fields(weight: LoraWeight | None) -> list[int]:
    """Returns the fields of csrc/structures.h's LoraLinear."""
    values: dict[str, int] = {}
    if weight is not None:
        values = {
            "inputs": weight.in_features, "outputs": weight.out_features, "segments": weight.segments,
            "width": weight.width, "rank": weight.rank, "dtype": DTYPES[weight.a.dtype], "a": weight.a.data_ptr(),
            "b": weight.b.data_ptr(), "panels": weight.panels.data_ptr(), "scales": weight.scales.data_ptr()}
    return [values.get(name, 0) for name in FIELDS]


FIELDS = tuple(name for name, *_ in native.structure("LoraLinear")._fields_)
