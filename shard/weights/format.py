"""A weight format: how a checkpoint stores the weights of its linears, and how they are computed with."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.stored import Entry, StoredTensor

STORED_BYTES = {
    "F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "U8": 1}
"""By a tensor's dtype in a file's header, the bytes of each of its numbers."""


class LinearError(ValueError):
    """Raised where the stored weights of one of several linears make no sense; `index` says of which."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


@contextmanager
def numbering(index: int) -> Iterator[None]:
    """Lets a ValueError out as a LinearError of this linear."""
    try:
        yield
    except ValueError as error:
        raise LinearError(index, str(error)) from error


@dataclass(frozen=True, slots=True)
class Place:
    """Where a linear's weight lies in a tensor that is not the weight itself."""

    number: int = 0                      # of several linears, whose weights one tensor has
    count: int = 0                       # how many these are; 0: it has one alone
    is_transposed: bool = False          # stored [inputs, outputs]
    is_bare: bool = False                # the tensor has the linear's name, without .weight

    @property
    def leading(self) -> tuple[tuple[int, ...], tuple[slice, ...]]:
        """Returns the tensor's axes before those of the weight, and which slice of each is this linear's."""
        return ((self.count,), (slice(self.number, self.number + 1),)) if self.count else ((), ())


ITSELF = Place()


@dataclass(frozen=True, slots=True)
class LinearPart:
    """The part that a rank has of one linear's weight [out_features, in_features]."""

    out_features: int
    in_features: int
    rows: slice                          # outputs
    columns: slice                       # inputs
    place: Place = ITSELF


class WeightFormat(Protocol):
    """One way to store the weights of linears. Their biases, and all norms, are stored as plain numbers in any format.

    A new format is a class with these methods, a subclass of `PackedWeight` which computes with what `pack` makes, and
    a row in `shard/models/quantization.py`.
    """

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        """Returns the tensors that hold a linear's weight, and which slice of each of them holds this part.

        A slice may be larger than the part, if the part begins or ends within a group of numbers.
        """

    def pack(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart], segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        """Puts linears of the same inputs one below the other, packed for `linear` where the kernels want them.

        linears   for each of them its tensors as they are stored, in the order of `tensors`; they may be views of a
                  file, which is read when they are copied
        parts     what of each of them the tensors are for
        segments  number of equal segments of these inputs, each of which is summed apart
        dtype     of the model's activations

        Raises LinearError for tensors whose contents make no sense.
        """

    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        """Returns how much memory a tensor of the checkpoint takes once it is packed, about."""


FormatOf = Callable[[str], WeightFormat]
"""Returns the format that a linear of this name is stored in, for a checkpoint may mix them."""


def memory_of(checkpoint: Checkpoint, format_of: FormatOf, dtype: torch.dtype) -> int:
    """Returns about how many bytes the whole model's weights take in memory, in activations of this dtype."""
    return sum(format_of(name.rpartition(".")[0]).num_bytes(entry, dtype) for name, entry in checkpoint.entries.items())
