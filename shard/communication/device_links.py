"""Exchanges tensors on the devices of a group's ranks: NCCL's collectives, one process to a GPU.

Every exchange is queued on the current stream, after what made its tensors, and the host goes on at once. All may be
captured in a CUDA graph, which should end before its group does.

A rank that fails leaves the others' streams waiting, and NCCL notices that only between machines. What does notice:

- The launcher: it sees that a process ended, or by `--step-timeout` that a step does not, and starts the group again.
- The hosts' links, which a dead process breaks: no rank agrees to another order. A host that waits for its own stream
  does not get there.
- torch's watchdog, which ends the process when an exchange outside of a graph took longer than EXCHANGE_SECONDS.
"""

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

EXCHANGE_SECONDS = 1800.0
"""That a device waits for another rank. More than any step takes, even one in which kernels are compiled: what a step
may take is the launcher's to say."""

# Named so since torch 2.13, where the older name warns.
_all_gather = dist.all_gather_single if hasattr(dist, "all_gather_single") else dist.all_gather_into_tensor


class DeviceLinks:
    """Links one rank to all others, for tensors of its device. Each rank has a device of its own.

    Tensors have one shape and dtype on all ranks. Exchanges of nothing are left out.
    """

    def __init__(
        self, backend: str, device: torch.device, rank: int, world_size: int, timeout: float, store: Path | None
    ) -> None:
        """Meet the other ranks, once the hosts have met.

        backend     nccl for GPUs; gloo has the same collectives for tensors of a processor, and waits for each
        timeout     seconds to wait for the others, here and in every later exchange; EXCHANGE_SECONDS if that is less
        store       a file that does not exist yet; None if torch.distributed connects the hosts, and these links too
        """
        self.device = device
        self._rank = rank
        self._world_size = world_size
        limit = timedelta(seconds=min(timeout, EXCHANGE_SECONDS))
        if store is None:
            self._group = dist.new_group(backend=backend, timeout=limit)
        else:
            dist.init_process_group(
                backend, init_method=f"file://{store}", rank=rank, world_size=world_size, timeout=limit)
            self._group = dist.group.WORLD
        self._warm_up()

    def all_gather(self, x: Tensor) -> Tensor:
        """Returns x [...] of every rank, in rank order: [W, ...]."""
        gathered = x.new_empty(self._world_size, *x.shape)
        if x.numel():
            _all_gather(gathered.view(-1), x.contiguous().view(-1), group=self._group)
        return gathered

    def gather(self, x: Tensor) -> list[Tensor] | None:
        """Returns x [...] of every rank, in rank order, on rank 0, and None on other ranks."""
        gathered = [torch.empty_like(x) for _ in range(self._world_size)] if self._rank == 0 else None
        if x.numel():
            dist.gather(x.contiguous(), gathered, dst=0, group=self._group)
        return gathered

    def transpose(self, x: Tensor) -> Tensor:
        """Send row r of x [W, N], contiguous, to rank r; returns every rank's row for this one, in rank order, [W, N].
        """
        received = torch.empty_like(x)
        if x.numel():
            dist.all_to_all_single(received, x, group=self._group)
        return received

    def sum(self, x: Tensor) -> Tensor:
        """Overwrite x, contiguous, with the sum over all ranks, added in an order of the backend's own, and return it.
        """
        if x.numel():
            dist.all_reduce(x, group=self._group)
        return x

    def broadcast(self, x: Tensor) -> None:
        """Overwrite x, contiguous, with rank 0's."""
        if x.numel():
            dist.broadcast(x, src=0, group=self._group)

    def close(self) -> None:
        """Leave the group; harmless when called twice."""
        if self._group is not None and dist.is_initialized():
            dist.destroy_process_group(self._group)
        self._group = None

    def _warm_up(self) -> None:
        """Make each exchange once: NCCL connects on first use, which may take seconds and belongs in no capture."""
        one = torch.ones(1, dtype=torch.int32, device=self.device)
        self.transpose(one.repeat(self._world_size, 1))
        self.all_gather(one)
        self.gather(one)
        self.broadcast(one)
        if int(self.sum(one)) != self._world_size:
            raise RuntimeError(f"the devices of {self._world_size} ranks should be linked, not of {int(one)}")
