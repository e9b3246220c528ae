"""Joins the shards of a group, and makes the few exchanges that they need.

Tensors of a processor are moved between pairs of ranks, as bytes, and added afterwards in an order that is fixed here;
a backend's reduction would add in an order of its own. Those of a GPU go from device to device, over links of their
own, and the host waits for none of them.
"""

from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import Tensor
from torch.nn.functional import pad

from penstock.kernels import dispatch
from penstock.shard.communication.device_links import DeviceLinks
from penstock.shard.communication.links import CollectiveLinks, Links, PartLinks, SocketLinks, Transfers, meet
from penstock.shard.communication.network_links import Network, connect_machines
from penstock.shard.communication.shared_memory import MemoryLinks
from penstock.system import addresses

SHARED_SUM = 1 << 18
"""Numbers from which the ranks' devices share the work of a sum in the tree's order. By its bandwidth NVLink takes for
the bytes that this saves among 8, of 1 MB each, about as long as a second exchange needs to begin; not measured."""


class Group:
    """Joins one rank to the others of its group. A group of one has no links.

    Every rank calls the same methods in the same order, with tensors of the same kind of device. A peer that died
    raises RuntimeError at once, one that hangs after the timeout of `connect`; where a GPU waits for one,
    `shard/communication/device_links.py` says what happens.
    """

    def __init__(
        self, rank: int = 0, world_size: int = 1, links: Links | None = None, device_links: DeviceLinks | None = None,
        num_local: int | None = None,
    ) -> None:
        """`links` are for tensors of the processor, and for all if there are no `device_links`. `num_local` is how many
        of the ranks are on this machine; None stands for all."""
        self.rank = rank
        self.world_size = world_size
        self.num_local = num_local or world_size
        self._links = links
        self._device_links = device_links
        self._peers = [peer for peer in range(world_size) if peer != rank]

    def part_of(self, first: int, size: int) -> "Group":
        """Returns the group of the ranks from `first` on, of which this is one, by the same links. Not for GPUs."""
        assert self._device_links is None, "the devices' links join all ranks of a group"
        return Group(self.rank - first, size, None if self._links is None else PartLinks(self._links, first))

    def again(self) -> "Group":
        """Returns a group of the same ranks by links of their own, which another thread may use, for tensors of the
        processor. Every rank calls it, between two exchanges."""
        return Group(self.rank, self.world_size, None if self._links is None else self._links.again())

    def part(self, length: int, rank: int | None = None) -> slice:
        """Returns the part of an axis that this rank (or another) owns: equal parts in rank order, the last one shorter
        if need be."""
        share = -(-length // self.world_size)
        start = (self.rank if rank is None else rank) * share
        return slice(min(start, length), min(start + share, length))

    def width(self, length: int, rank: int | None = None) -> int:
        """Returns the length of `part`."""
        part = self.part(length, rank)
        return int(part.stop - part.start)

    def all_gather(self, x: Tensor) -> Tensor:
        """Returns x [...] of every rank, in rank order: [W, ...]."""
        if self.world_size == 1:
            return x.unsqueeze(0)
        if links := self._device_links_of(x):
            return links.all_gather(x)
        x = x.contiguous()
        gathered = x.new_empty(self.world_size, *x.shape)
        gathered[self.rank] = x
        self._exchange([(peer, x) for peer in self._peers], [(peer, gathered[peer]) for peer in self._peers])
        return gathered

    def sum(self, partial: Tensor) -> Tensor:
        """Returns the sum over the ranks of partial, float32 [T, N], which may be overwritten: the same bits on each of
        them.

        Where the bit contract holds it is `tree_sum`'s; a GPU outside it adds on the way, in NCCL's order.
        """
        links = self._device_links_of(partial)
        if links is None:
            return tree_sum(self.all_gather(partial))
        if not dispatch.is_deterministic():
            return links.sum(partial)
        if self.world_size == 2 or partial.numel() < SHARED_SUM or partial.numel() % self.world_size:
            return tree_sum(links.all_gather(partial))
        # Each rank adds one part up: two exchanges for one, of 2 / W of its bytes.
        own_part = tree_sum(links.transpose(partial.reshape(self.world_size, -1)))
        return links.all_gather(own_part).view(partial.shape)

    def from_owners(self, x: Tensor, owners: Tensor) -> Tensor:
        """Returns x [T, C], which may be overwritten, with each row's bits from the rank that owners, int64 [T], names.

        A row is a multiple of 4 bytes.
        """
        if links := self._device_links_of(x):
            # Added as integers, the zeros of all but the owner change nothing; a gather would bring W times the bytes.
            x.masked_fill_((owners != self.rank).unsqueeze(1), 0)
            return links.sum(x.view(torch.int32)).view(x.dtype)
        return self.all_gather(x)[owners, torch.arange(len(owners), device=owners.device)]

    def gather_columns(self, local: Tensor, num_columns: int) -> Tensor | None:
        """Returns the ranks' columns [R, part(num_columns)] side by side, [R, num_columns], on rank 0, and None
        elsewhere."""
        if self.world_size == 1:
            return local
        if links := self._device_links_of(local):
            missing = self.width(num_columns, rank=0) - local.shape[1]
            gathered = links.gather(pad(local, (0, missing)) if missing else local)
            return None if gathered is None else torch.cat(
                [columns[:, :self.width(num_columns, rank)] for rank, columns in enumerate(gathered)], dim=1)
        if self.rank != 0:
            self._exchange([(0, local.contiguous())], [])
            return None
        others = [local.new_empty(len(local), self.width(num_columns, peer)) for peer in self._peers]
        self._exchange([], list(zip(self._peers, others, strict=True)))
        return torch.cat([local, *others], dim=1)

    def broadcast(self, tensor: Tensor) -> None:
        """Overwrite tensor, contiguous, of one shape and dtype everywhere, with rank 0's."""
        if links := self._device_links_of(tensor):
            links.broadcast(tensor)
        elif self.rank == 0:
            self._exchange([(peer, tensor) for peer in self._peers], [])
        else:
            self._exchange([], [(0, tensor)])

    def send(self, tensor: Tensor, rank: int) -> None:
        """Send a processor's tensor, contiguous, which nobody changes any more, to another rank. A small one does not
        wait until that rank takes it."""
        if self._links is not None:
            self._links.send(rank, tensor)

    def receive(self, tensor: Tensor, rank: int) -> None:
        """Overwrite a processor's tensor, contiguous, with what another rank sends."""
        self._exchange([], [(rank, tensor)])

    def close(self) -> None:
        """Leave the group. Harmless when a peer is gone already, and when called twice."""
        for links in (self._device_links, self._links):
            if links is not None:
                links.close()

    def _device_links_of(self, tensor: Tensor) -> DeviceLinks | None:
        """Returns the links that a tensor goes over, if not those of the hosts."""
        links = self._device_links
        return links if links is not None and tensor.device.type == links.device.type else None

    def _exchange(self, sends: Transfers, receives: Transfers) -> None:
        if self._links is not None:
            self._links.exchange(sends, receives)


def tree_sum(partials: Tensor) -> Tensor:
    """Returns the sum of partials, float32 [W, T, N], over the ranks: [T, N], as ((0 + 1) + (2 + 3)) + ….

    It continues the tree of `linear`: ranks that hold subtrees of one weight get the bits of the whole.
    """
    while len(partials) > 1:
        num_paired = len(partials) & ~1
        pairs = partials[0:num_paired:2] + partials[1::2]
        partials = torch.cat([pairs, partials[num_paired:]]) if num_paired < len(partials) else pairs
    return partials[0]


def connect_across(
    rendezvous: str, network: Network, rank: int, world_size: int, timeout: float, is_clear_allowed: bool
) -> Group:
    """Meet the ranks of several machines, those of this one at `rendezvous`, file:///path, and return this one's end.

    Raises ValueError where GPUs would exchange in the clear and may not, and for an address that can't be listened at;
    RuntimeError if the others do not come.
    """
    device = dispatch.device()
    if device.type == "cpu":
        path = Path(urlsplit(rendezvous).path) if rendezvous else None
        links = connect_machines(path, network, rank, world_size, timeout)
        return Group(rank, world_size, links, num_local=network.shards_here)
    if not is_clear_allowed:
        raise ValueError("GPUs of several machines exchange by NCCL, which encrypts nothing: --allow-clear-exchange "
                         "allows that, on a network that nobody else is on")
    hosts = CollectiveLinks(f"tcp://{network.exchanges[0]}", rank, world_size, timeout, is_local=False)
    check_apart(Group(rank, world_size, hosts), str(torch.cuda.get_device_properties(device).uuid))
    return Group(rank, world_size, hosts, DeviceLinks("nccl", device, rank, world_size, timeout, None),
                 network.shards_here)


def connect(rendezvous: str, rank: int, world_size: int, timeout: float = 120.0) -> Group:
    """Meet the other ranks and return this one's end of the group. Size 1 meets nobody.

    rendezvous  file:///path for ranks of one machine: they meet at {path}-{rank}, files that do not exist yet, and
                their GPUs at {path}-devices; or tcp://host:port, where rank 0 will listen
    timeout     seconds to wait for the others, here and in every later exchange

    Where the kernels run on a GPU, it is the one that the calling thread has taken.

    Raises ValueError for a rank, size or rendezvous that cannot be and for ranks that have one GPU, RuntimeError if the
    others do not come.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in a group of {world_size}: expected 0 to {world_size - 1}")
    if world_size == 1:
        return Group()
    address = urlsplit(rendezvous)
    is_file = address.scheme == "file" and not address.netloc and len(address.path) > 1
    if not is_file and not (address.scheme == "tcp" and address.hostname and address.port):
        raise ValueError(f"rendezvous {rendezvous!r}: expected file:///path or tcp://host:port")
    device = dispatch.device()
    store = Path(f"{address.path}-devices") if is_file else None
    if store is not None and rank == 0 and device.type == "cuda":
        store.unlink(missing_ok=True)  # a killed group's; nobody opens it before rank 0 has been met
        store.touch(0o600)
    links = (_machine_links(Path(address.path), rank, world_size, timeout) if is_file
             else CollectiveLinks(rendezvous, rank, world_size, timeout, addresses.is_loopback(address.hostname or "")))
    hosts = Group(rank, world_size, links)
    if device.type == "cpu":
        return hosts
    check_apart(hosts, str(torch.cuda.get_device_properties(device).uuid))
    return Group(rank, world_size, links, DeviceLinks("nccl", device, rank, world_size, timeout, store))


def check_apart(hosts: Group, device: str) -> None:
    """Raises ValueError on every rank if two have the same device, by names of one length: NCCL cannot link them."""
    names = [bytes(name.tolist()) for name in hosts.all_gather(torch.tensor(list(device.encode()), dtype=torch.uint8))]
    sharing = {name: [rank for rank, other in enumerate(names) if other == name] for name in names}
    for name, ranks in sharing.items():
        if len(ranks) > 1:
            raise ValueError(f"ranks {', '.join(map(str, ranks))} are on one GPU, {name.decode()}: a group of "
                             f"{hosts.world_size} needs as many GPUs")


def _machine_links(path: Path, rank: int, world_size: int, timeout: float) -> Links:
    sockets = meet(path, rank, world_size, timeout)
    if dispatch.kernel_set() == "cpu":
        return MemoryLinks(sockets, rank, world_size, timeout)
    return SocketLinks(sockets, rank, timeout)
