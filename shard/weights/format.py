"""What a weight format is: how a checkpoint stores the weights of its linears, and what is computed with them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight
from penstock.shard.weights.checkpoint import Checkpoint, Entry, StoredTensor


@dataclass(frozen=True, slots=True)
class LinearPart:
    """The part that a rank has of one linear's weight [out_features, in_features]."""

    out_features: int
    in_features: int
    rows: slice                          # outputs
    columns: slice                       # inputs


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
        self, linears: Sequence[Sequence[Tensor]], columns: slice, segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        """Puts linears of the same inputs one below the other, packed for `linear` where the kernels want them.

        linears   for each of them its tensors as they are stored, in the order of `tensors`; they may be views of a
                  file, which is read when they are copied
        columns   the inputs, counted over all ranks, that the tensors are for
        segments  number of equal segments of these inputs, each of which is summed apart
        dtype     of the model's activations
        """

    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        """Returns how much memory a tensor of the checkpoint takes once it is packed, about."""


FormatOf = Callable[[str], WeightFormat]
"""Returns the format that a linear of this name is stored in, for a checkpoint may mix them."""


def memory_of(checkpoint: Checkpoint, format_of: FormatOf, dtype: torch.dtype) -> int:
    """Returns about how many bytes the whole model's weights take in memory, in activations of this dtype."""
    return sum(format_of(name.rpartition(".")[0]).num_bytes(entry, dtype) for name, entry in checkpoint.entries.items())
