"""Attention metadata says where the tokens of a step belong; the ops hand it around."""

import ctypes
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.checks import check_axes, check_tensor
from penstock.kernels.lora.rows import AdapterRows
from penstock.kernels.native import address
from penstock.kernels.recurrent_state import StateRows


@dataclass(frozen=True, eq=False)
class AttentionMetadata:
    """Places a step's T tokens, which belong to S sequences one after the other. All layers share it."""

    positions: Tensor  # int64 [T], of each token in its sequence
    slot_mapping: Tensor  # int64 [T], where `kv_write` puts each token's K and V
    tables: Tensor  # int32 [S, max_blocks], the blocks of each sequence
    starts: Tensor  # int32 [S], position of each sequence's first token
    counts: Tensor  # int32 [S], tokens of each sequence
    slots: Tensor | None = None  # int32 [S], where the recurrent state of each sequence is, in models that have one
    adapters: AdapterRows | None = None  # of the tokens, if any of them has one
    texts: Tensor | None = None  # int64 [T], 1 for the tokens of the second text of a pair, 0 for others; None: all 0
    is_decode: bool = False  # known to be one token for each sequence, which saves a GPU a look at the counts

    def __post_init__(self) -> None:
        """Raises ValueError for shapes and dtypes that do not fit together."""
        op, num_sequences = "AttentionMetadata", len(self.starts)
        check_tensor(op, "positions", self.positions, (len(self.slot_mapping),), torch.int64)
        check_tensor(op, "slot_mapping", self.slot_mapping, (len(self.slot_mapping),), torch.int64)
        check_axes(op, "tables", self.tables, "S, max_blocks")
        check_tensor(op, "tables", self.tables, (num_sequences, self.tables.shape[1]), torch.int32)
        check_tensor(op, "starts", self.starts, (num_sequences,), torch.int32)
        check_tensor(op, "counts", self.counts, (num_sequences,), torch.int32)
        if self.texts is not None:
            check_tensor(op, "texts", self.texts, (len(self.slot_mapping),), torch.int64)
        if self.adapters is not None:
            check_tensor(op, "adapters", self.adapters.groups, (len(self.slot_mapping),), torch.int32)

    @cached_property
    def state_rows(self) -> StateRows:
        """Returns where the sequences' recurrent states are."""
        assert self.slots is not None, "a model with recurrent layers is given the slots"
        return StateRows(self.slots, self.starts, self.counts)

    @cached_property
    def struct(self) -> ctypes.Structure:
        """Returns the struct that csrc/structures.h declares, which is made once for all layers."""
        return native.structure("AttentionMetadata")(
            num_tokens=len(self.positions), num_sequences=len(self.starts), max_blocks=self.tables.shape[1],
            positions=address(self.positions), slot_mapping=address(self.slot_mapping), tables=address(self.tables),
            starts=address(self.starts), counts=address(self.counts))
