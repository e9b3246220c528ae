"""Exchanges through memory that the ranks of one machine share: what a socket does in 30 µs takes 2 here.

The ranks' sockets stay: over them the memory is handed out, and they tell that a peer died.
"""

import mmap
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.shard.communication.errors import PeerLost
from penstock.shard.communication.links import Links, SocketLinks, Transfers, more_sockets

PATIENCE = 20_000
"""Microseconds between two looks at the sockets, for a rank that waits."""


class MemoryLinks:
    """Exchanges through memory, handed out over the sockets of one rank to all others."""

    def __init__(self, sockets: Mapping[int, socket.socket], rank: int, world_size: int, timeout: float) -> None:
        # Only where the compiled kernels run is there something to import.
        from penstock.kernels.native import library

        self._library: Any = library
        self._sockets = sockets
        self._rank = rank
        self._world_size = world_size
        self._timeout = timeout
        self._memory = torch.frombuffer(_share(sockets, rank, self._num_bytes()), dtype=torch.uint8)
        self._is_done = np.zeros(1, np.int64)
        self._transfers = np.zeros((world_size, 4), np.int64)
        """Per peer: address and bytes of what to send, address and bytes of what to receive."""

    def exchange(self, sends: Transfers, receives: Transfers) -> None:
        for peer, tensor in sends:
            self._transfers[peer, :2] = tensor.data_ptr(), tensor.nbytes
        for peer, tensor in receives:
            self._transfers[peer, 2:] = tensor.data_ptr(), tensor.nbytes
        self._advance()
        deadline = 0.0
        while not self._is_done[0]:
            # What is in the pipes outlives the rank that wrote it, so a dead peer's last words are read first.
            dead = [peer for peer in self._sockets if self._transfers[peer, 1::2].any() and self._is_gone(peer)]
            left = self._transfers.copy()
            self._advance()
            if dead and not self._is_done[0] and (left == self._transfers).all():
                raise PeerLost(f"rank {dead[0]} is gone")
            deadline = deadline or time.monotonic() + self._timeout
            if time.monotonic() > deadline:
                raise PeerLost(f"rank {self._waited_for()} has said nothing for {self._timeout:g} s")

    def send(self, peer: int, tensor: Tensor) -> None:
        self.exchange([(peer, tensor)], [])

    def again(self) -> Links:
        """Returns links that wait without spinning, by sockets: for a thread beside one that computes."""
        return SocketLinks(more_sockets(self._sockets, self._rank, self._timeout), self._rank, self._timeout)

    def close(self) -> None:
        for link in self._sockets.values():
            link.close()

    def _advance(self) -> None:
        self._library.exchange(self._memory.data_ptr(), self._rank, self._world_size, self._transfers.ctypes.data,
                               PATIENCE, self._is_done.ctypes.data)

    def _num_bytes(self) -> int:
        size = np.zeros(1, np.int64)
        self._library.exchange_bytes(self._world_size, size.ctypes.data)
        return int(size[0])

    def _is_gone(self, peer: int) -> bool:
        try:
            return not self._sockets[peer].recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _waited_for(self) -> int:
        return int(self._transfers[:, 1::2].any(axis=1).argmax())


def _share(sockets: Mapping[int, socket.socket], rank: int, num_bytes: int) -> mmap.mmap:
    """Returns the same memory in every rank: rank 0 makes it and hands it to the others."""
    if rank == 0:
        file = os.memfd_create("penstock")
        os.ftruncate(file, num_bytes)
        for link in sockets.values():
            socket.send_fds(link, [b"m"], [file])
    else:
        [file] = socket.recv_fds(sockets[0], 1, 1)[1]
    try:
        return mmap.mmap(file, num_bytes)
    finally:
        os.close(file)
