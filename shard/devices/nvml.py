"""Reads the energy of NVIDIA's GPUs from the library of their driver (NVML), which comes with the driver."""

import ctypes
from dataclasses import dataclass

import torch

LIBRARY = "libnvidia-ml.so.1"
PERIOD = 0.02
"""The least seconds between two readings: counts stand still for about as long."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Stands for a GPU of the driver's library."""

    library: ctypes.CDLL
    handle: ctypes.c_void_p
    most: int | None = None

    def read(self) -> int:
        millijoules = ctypes.c_ulonglong()
        _check(self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(millijoules)))
        return millijoules.value * 1000


def counters(local_rank: int) -> list[Gpu]:
    """Returns the counter of the GPU of a rank, or none if a rank before it on this machine has the same. Raises
    OSError if there is none, as of GPUs before Volta and of parts of a GPU (MIG)."""
    if local_rank >= torch.cuda.device_count():
        return []
    return [find(str(torch.cuda.get_device_properties(local_rank).uuid))]


def find(uuid: str, library: str = LIBRARY) -> Gpu:
    """Returns the counter of a GPU. Raises OSError."""
    loaded = ctypes.CDLL(library)
    if not hasattr(loaded, "nvmlDeviceGetTotalEnergyConsumption"):
        raise OSError("the driver of the GPU is too old to tell it")
    _check(loaded.nvmlInit_v2())
    handle = ctypes.c_void_p()
    _check(loaded.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle)))
    return Gpu(loaded, handle)


def _check(status: int) -> None:
    if status:
        raise OSError(f"the driver of the GPU does not tell it (NVML's error {status})")
