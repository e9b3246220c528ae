"""The shards of one tensor-parallel group, and the few exchanges that they need.

Tensors are moved between pairs of ranks, as bytes, and added afterwards in an order that is fixed here; a backend's
reduction would add in an order of its own.
"""

from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import Tensor

from kernels import dispatch
from shard.links import CollectiveLinks, Links, SocketLinks, Transfers, meet
from shard.shared_memory import MemoryLinks


class Group:
    """One rank's end of its group. A group of one has no links.

    Every rank calls the same methods in the same order. A peer that died raises RuntimeError at once, one that hangs
    after the timeout of `connect`.
    """

    def __init__(self, rank: int = 0, world_size: int = 1, links: Links | None = None) -> None:
        self.rank = rank
        self.world_size = world_size
        self._links = links
        self._peers = [peer for peer in range(world_size) if peer != rank]

    def part(self, length: int, rank: int | None = None) -> slice:
        """What this rank (or another) owns of an axis: equal parts in rank order, the last one shorter if need be."""
        share = -(-length // self.world_size)
        start = (self.rank if rank is None else rank) * share
        return slice(min(start, length), min(start + share, length))

    def width(self, length: int, rank: int | None = None) -> int:
        """The length of `part`."""
        part = self.part(length, rank)
        return int(part.stop - part.start)

    def all_gather(self, x: Tensor) -> Tensor:
        """x [...] of every rank, in rank order: [W, ...]."""
        if self.world_size == 1:
            return x.unsqueeze(0)
        x = x.contiguous()
        gathered = x.new_empty(self.world_size, *x.shape)
        gathered[self.rank] = x
        self._exchange([(peer, x) for peer in self._peers], [(peer, gathered[peer]) for peer in self._peers])
        return gathered

    def tree_sum(self, partial: Tensor) -> Tensor:
        """The sum over the ranks of partial, float32 [T, N], as ((0 + 1) + (2 + 3)) + …: the same bits on each of them.

        It continues the tree of `kernels.linear`: ranks that hold subtrees of one weight get the bits of the whole.
        """
        sums: list[Tensor] = list(self.all_gather(partial))
        while len(sums) > 1:
            pairs = [left + right for left, right in zip(sums[0::2], sums[1::2], strict=False)]
            sums = pairs + sums[len(sums) & ~1 :]
        return sums[0]

    def gather_columns(self, local: Tensor, num_columns: int) -> Tensor | None:
        """Rank 0: the ranks' columns [R, part(num_columns)] side by side, [R, num_columns]. Other ranks: None."""
        if self.world_size == 1:
            return local
        if self.rank != 0:
            self._exchange([(0, local.contiguous())], [])
            return None
        others = [local.new_empty(len(local), self.width(num_columns, peer)) for peer in self._peers]
        self._exchange([], list(zip(self._peers, others, strict=True)))
        return torch.cat([local, *others], dim=1)

    def broadcast(self, tensor: Tensor) -> None:
        """Overwrite tensor, contiguous, of one shape and dtype everywhere, with rank 0's."""
        if self.rank == 0:
            self._exchange([(peer, tensor) for peer in self._peers], [])
        else:
            self._exchange([], [(0, tensor)])

    def close(self) -> None:
        """Leave the group. Harmless when a peer is gone already, and when called twice."""
        if self._links is not None:
            self._links.close()

    def _exchange(self, sends: Transfers, receives: Transfers) -> None:
        if self._links is not None:
            self._links.exchange(sends, receives)


def connect(rendezvous: str, rank: int, world_size: int, timeout: float = 120.0) -> Group:
    """Meet the other ranks and return this one's end of the group. Size 1 meets nobody.

    rendezvous  file:///path for ranks of one machine: they meet at {path}-{rank}, files that do not exist yet;
                or tcp://host:port, where rank 0 will listen
    timeout     seconds to wait for the others, here and in every later exchange

    Raises ValueError for a rank, size or rendezvous that cannot be, RuntimeError if the others do not come.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in a group of {world_size}: expected 0 to {world_size - 1}")
    if world_size == 1:
        return Group()
    address = urlsplit(rendezvous)
    is_file = address.scheme == "file" and not address.netloc and len(address.path) > 1
    if not is_file and not (address.scheme == "tcp" and address.hostname and address.port):
        raise ValueError(f"rendezvous {rendezvous!r}: expected file:///path or tcp://host:port")
    if is_file:
        sockets = meet(Path(address.path), rank, world_size, timeout)
        if dispatch.kernel_set() == "reference":
            return Group(rank, world_size, SocketLinks(sockets, rank, timeout))
        return Group(rank, world_size, MemoryLinks(sockets, rank, world_size, timeout))
    is_local = address.hostname in ("localhost", "127.0.0.1", "::1")
    return Group(rank, world_size, CollectiveLinks(rendezvous, rank, world_size, timeout, is_local))
