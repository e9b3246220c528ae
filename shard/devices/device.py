"""Brings a step's numbers to the device that the kernels run on, and its results back.

A processor reads them where they lie. A GPU runs behind the host: what it is to read is copied into pinned memory, all
of a step in one piece, and fetched from there when its turn comes; what it has made is copied beside the step that
follows, and only who needs the results waits.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ALIGNMENT = 16                           # bytes; of every array in the piece
_DTYPES = {np.bool_: torch.bool, np.int32: torch.int32, np.int64: torch.int64, np.float32: torch.float32}

Array = npt.NDArray[Any]
Moment = torch.cuda.Event | int
"""A point in the device's work: an event on a GPU, nanoseconds elsewhere."""


@dataclass(frozen=True, slots=True)
class Download:
    """Holds tensors on their way to the host. `ready` is None if they are there already."""

    tensors: list[Tensor]
    sources: list[Tensor]                # kept until they are copied
    ready: torch.cuda.Event | None = None

    def wait(self) -> list[Tensor]:
        """Wait for the tensors and return them on the host. Other threads run meanwhile; any of them may call it."""
        if self.ready is not None:
            self.ready.synchronize()
        return self.tensors


class Device:
    """Uploads and downloads for the thread that launches steps. `packs` tells whether arrays go in one piece."""

    def __init__(self, device: torch.device, packs: bool = False) -> None:
        self.device = device
        self._is_gpu = device.type == "cuda"
        self._packs = packs or self._is_gpu
        # A stream of its own, so that the step that follows does not wait for the copies.
        self._downloads = torch.cuda.Stream(device) if self._is_gpu else None  # type: ignore[no-untyped-call]

    def upload(self, arrays: Sequence[Array]) -> list[Tensor]:
        """Returns a tensor for each of some contiguous arrays, which must not change any more: a processor reads them
        there."""
        if not self._packs:
            return [torch.from_numpy(array) for array in arrays]
        offsets, num_bytes = lay_out(arrays)
        # The allocator of pinned memory gives a piece out again only when the copy from it is done.
        piece = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=self._is_gpu)
        pack(arrays, offsets, piece.numpy())
        return unpack(piece.to(self.device, non_blocking=True), arrays, offsets)

    def download(self, tensors: Sequence[Tensor]) -> Download:
        """Begin to copy tensors, which nothing may overwrite before that is done, once what makes them has run."""
        if self._downloads is None:
            return Download(list(tensors), [])
        self._downloads.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._downloads):
            copies = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
                      for tensor in tensors]
            ready = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            ready.record()
        return Download(copies, list(tensors), ready)

    def mark(self) -> Moment:
        """Returns a mark of now, as the device's work sees it: when it has done what was launched before."""
        if not self._is_gpu:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def nanoseconds(begin: Moment, end: Moment) -> int:
    """Returns the time from one mark to another, both of which were reached."""
    if isinstance(begin, int) and isinstance(end, int):
        return end - begin
    assert isinstance(begin, torch.cuda.Event), "marks of one device"
    assert isinstance(end, torch.cuda.Event), "marks of one device"
    return int(begin.elapsed_time(end) * 1e6)


def lay_out(arrays: Sequence[Array]) -> tuple[list[int], int]:
    """Returns where each array begins in one piece of memory, in bytes, and how long the piece is."""
    offsets, end = [], 0
    for array in arrays:
        offsets.append(end)
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, end


def pack(arrays: Sequence[Array], offsets: Sequence[int], piece: npt.NDArray[np.uint8]) -> None:
    """Copy the arrays to where `lay_out` put them."""
    for array, offset in zip(arrays, offsets, strict=True):
        piece[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)


def unpack(piece: Tensor, arrays: Sequence[Array], offsets: Sequence[int]) -> list[Tensor]:
    """Returns the arrays as views of the piece, uint8, that they were packed into."""
    typed: dict[torch.dtype, Tensor] = {}
    tensors = []
    for array, offset in zip(arrays, offsets, strict=True):
        dtype = _DTYPES[array.dtype.type]
        if dtype not in typed:
            typed[dtype] = piece.view(dtype)
        strides = [stride // array.itemsize for stride in array.strides]
        tensors.append(typed[dtype].as_strided(array.shape, strides, offset // array.itemsize))
    return tensors
