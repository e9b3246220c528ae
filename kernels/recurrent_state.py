"""The state that one recurrent layer carries from a sequence's tokens to its next, which the ops hand around."""

from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from penstock.kernels.checks import check_tensor

ALIGNMENT = 64                           # bytes, at which the matrices begin


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """Holds the state of N sequences, each in its slot; to copy or move one, copy a row of `data`. The content of a
    slot before its sequence's first token is not read."""

    data: Tensor      # uint8 [N, bytes of a state]
    inputs: Tensor    # [N, W - 1, C], of the activations' dtype: the last inputs of the convolution, the oldest first
    matrices: Tensor  # float32 [N, H, K, D]


class LayerMemory(Protocol):
    """The memory that one layer has for the sequences: a `KvCache`, a `RecurrentState`, or another kind."""

    @property
    def data(self) -> Tensor:
        """The memory that was taken for it, uint8."""


@dataclass(frozen=True, slots=True)
class StateShape:
    """Describes one sequence's state in one layer."""

    num_inputs: int                      # W - 1
    channels: int
    matrices: tuple[int, int, int]       # heads, K, D
    dtype: torch.dtype                   # of the inputs

    @property
    def num_bytes(self) -> int:
        return self._inputs_bytes + prod(self.matrices) * torch.float32.itemsize

    @property
    def _inputs_bytes(self) -> int:
        return -(-self.num_inputs * self.channels * self.dtype.itemsize // ALIGNMENT) * ALIGNMENT

    def allocate(self, number: int, device: torch.device) -> RecurrentState:
        """Returns memory for the states of so many sequences. The system gives a processor's memory as it is first
        written to."""
        data = torch.empty(number, self.num_bytes, dtype=torch.uint8, device=device)
        numbers = self.num_inputs * self.channels
        inputs = data[:, :numbers * self.dtype.itemsize].view(self.dtype)
        matrices = data[:, self._inputs_bytes:].view(torch.float32)
        return RecurrentState(data, inputs.view(number, self.num_inputs, self.channels),
                              matrices.view(number, *self.matrices))


@dataclass(frozen=True, slots=True)
class StateRows:
    """Tells to which sequences the T tokens of a step belong, one sequence after the other, and where their states are.
    All three are int32 [S]."""

    slots: Tensor
    starts: Tensor   # position of each sequence's first token; the state of one at position 0 begins with zeros
    counts: Tensor   # tokens of each sequence; one without any keeps its state, unless it is at position 0

    def check(self, op: str) -> None:
        """Raises ValueError for shapes and dtypes that do not fit together."""
        for name, tensor in (("slots", self.slots), ("starts", self.starts), ("counts", self.counts)):
            check_tensor(op, name, tensor, (len(self.slots),), torch.int32)

    def check_values(self, op: str, num_tokens: int, num_states: int) -> None:
        """Raises ValueError for others than `num_tokens` in all and for slots without a state; a GPU is waited for."""
        if not len(self.slots) and not num_tokens:
            return
        if int(self.counts.sum()) != num_tokens or int(self.counts.min()) < 0:
            raise ValueError(f"{op}: counts {self.counts.tolist()} do not fit {num_tokens} tokens")
        if int(self.slots.min()) < 0 or int(self.slots.max()) >= num_states:
            raise ValueError(f"{op}: slots {self.slots.tolist()} are not among the {num_states} that have a state")

    def spans(self) -> list[tuple[int, int, int, int]]:
        """Returns the slot, the start, the first token and the one past the last token of each sequence; a GPU is
        waited for."""
        ends = self.counts.cumsum(0).tolist()
        return [(slot, start, end - count, end) for slot, start, count, end in zip(
            self.slots.tolist(), self.starts.tolist(), self.counts.tolist(), ends, strict=True)]
