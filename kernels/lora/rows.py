"""Which adapter each row of a step has."""

import ctypes
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.lora.adapter import Adapter, LoraWeight


@dataclass(frozen=True, eq=False)
class AdapterRows:
    """The adapters of a step's T rows. All layers share it."""

    groups: Tensor                       # int32 [T]: for each row the number of its adapter below; -1: it has none
    adapters: tuple[Adapter, ...]        # for the same linears

    def __post_init__(self) -> None:
        """Raises ValueError unless there are adapters, for one model, and numbers of them."""
        if not self.adapters or len({len(adapter.weights) for adapter in self.adapters}) > 1:
            raise ValueError(f"AdapterRows: adapters for {[len(each.weights) for each in self.adapters]} linears, "
                             "expected some for as many each")
        if self.groups.dtype != torch.int32 or self.groups.dim() != 1:
            raise ValueError(f"AdapterRows: groups are {self.groups.dtype} {list(self.groups.shape)}, expected "
                             "torch.int32 [T]")

    def rank(self, site: int) -> int:
        """Returns the highest rank that these adapters have for a linear; 0 if they have nothing for it."""
        return self._ranks[site]

    def weights(self, site: int) -> list[LoraWeight | None]:
        """Returns the weights of each adapter for a linear."""
        return [adapter.weights[site] for adapter in self.adapters]

    def of(self, rows: Tensor) -> "AdapterRows":
        """Returns the adapters of these rows alone, int64 indices into T."""
        own = AdapterRows(self.groups[rows], self.adapters)
        own.__dict__.update(_ranks=self._ranks, table=self.table)
        return own

    @cached_property
    def table(self) -> Tensor:
        """Returns int64 [adapters, sites, fields of csrc/structures.h's LoraLinear]."""
        return torch.stack([adapter.table for adapter in self.adapters])

    @cached_property
    def struct(self) -> ctypes.Structure:
        """Returns the struct that csrc/structures.h declares, which is made once for all layers."""
        return native.structure("AdapterRows")(
            num_tokens=len(self.groups), num_sites=self.table.shape[1], num_groups=len(self.adapters),
            groups=self.groups.data_ptr(), table=self.table.data_ptr())

    @cached_property
    def _ranks(self) -> list[int]:
        return [max(weight.rank if weight else 0 for weight in weights)
                for weights in zip(*(adapter.weights for adapter in self.adapters), strict=True)]
