"""Links the ranks of a group: Unix sockets on one machine, and torch.distributed, over TCP, where it is asked for.
`network_links.py` is for several machines.

A model step exchanges a few kilobytes some twenty times, and each exchange is waited for. A blocking socket hands them
over in about 0.03 ms, even when every core computes; gloo passes them through threads of its own, which on busy cores
took 0.7 ms each. `shared_memory.py` is faster still, where the compiled kernels run. Tensors on GPUs go by
`device_links.py`, and only what the hosts must agree on goes this way.
"""

import errno
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch import Tensor

from penstock.shard.communication.errors import PeerLost
from penstock.system import peers

RETRY_SECONDS = 0.01
BUFFER_BYTES = 1 << 20
_RANK = struct.Struct("<I")

Transfers = Sequence[tuple[int, Tensor]]


class Links(Protocol):
    """Links one rank to all others. Tensors are contiguous, and both ends name the same shapes."""

    def exchange(self, sends: Transfers, receives: Transfers) -> None:
        """Send tensors to peers and overwrite others with what comes from peers; at most one each way per peer.

        Raises PeerLost when a peer died, or said nothing for the timeout.
        """

    def send(self, peer: int, tensor: Tensor) -> None:
        """Send a tensor, which nobody changes any more, to a peer that will ask for it by `exchange`. Less than 256 KB
        in all that it has not asked for yet do not wait for it."""

    def again(self) -> "Links":
        """Returns links between the same ranks which another thread may use. Every rank calls it, between two
        exchanges."""

    def close(self) -> None:
        """Leave the others; harmless when a peer is gone already, and when called twice."""


def meet(path: Path, rank: int, world_size: int, timeout: float) -> dict[int, socket.socket]:
    """Returns a blocking Unix socket to each peer: rank r listens at `{path}-{r}` until all higher ranks have come.

    Raises ValueError if that file cannot be made, PeerLost if a rank has not come within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    sockets: dict[int, socket.socket] = {}
    own = Path(f"{path}-{rank}")
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(own))
            own.chmod(0o600)
        except OSError as error:
            raise ValueError(f"rendezvous {own}: cannot listen there: {error}") from error
        try:
            listener.listen(world_size)
            for peer in range(rank):
                sockets[peer] = _call(Path(f"{path}-{peer}"), rank, deadline)
            for _ in range(rank + 1, world_size):
                peer, link = _answer(listener, deadline)
                sockets[peer] = link
        finally:
            own.unlink()
    _set_up(sockets.values(), timeout)
    return sockets


def more_sockets(sockets: Mapping[int, socket.socket], rank: int, timeout: float) -> dict[int, socket.socket]:
    """Returns another blocking socket to each peer, handed out over those that there are: the lower rank of a pair
    makes it."""
    more: dict[int, socket.socket] = {}
    for peer, link in sockets.items():
        if peer > rank:
            more[peer], end = socket.socketpair()
            with end:
                socket.send_fds(link, [b"s"], [end.fileno()])
    for peer, link in sockets.items():
        if peer < rank:
            [file] = socket.recv_fds(link, 1, 1)[1]
            more[peer] = socket.socket(fileno=file)
    _set_up(more.values(), timeout)
    return more


def _set_up(sockets: Iterable[socket.socket], timeout: float) -> None:
    seconds = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
    for link in sockets:
        link.setblocking(True)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)


class SocketLinks:
    """Exchanges over the sockets of `meet` and `connect_machines`, whose timeout this is."""

    def __init__(self, sockets: Mapping[int, socket.socket], rank: int, timeout: float) -> None:
        self._sockets = sockets
        self._rank = rank
        self._timeout = timeout

    def exchange(self, sends: Transfers, receives: Transfers) -> None:
        """Exchange with peer after peer in ascending order, the lower rank of a pair sending first: so none wait in a
        circle."""
        outgoing, incoming = dict(sends), dict(receives)
        for peer, link in sorted(self._sockets.items()):
            try:
                if peer in outgoing and self._rank < peer:
                    link.sendall(_bytes(outgoing[peer]))
                if peer in incoming:
                    _receive(link, _bytes(incoming[peer]))
                if peer in outgoing and self._rank > peer:
                    link.sendall(_bytes(outgoing[peer]))
            except (BlockingIOError, TimeoutError) as error:
                if error.errno == errno.ETIMEDOUT:
                    raise PeerLost(f"rank {peer} is gone: its machine does not answer") from error
                raise PeerLost(f"rank {peer} has said nothing for {self._timeout:g} s") from error
            except OSError as error:
                raise PeerLost(f"rank {peer} is gone: {error}") from error

    def send(self, peer: int, tensor: Tensor) -> None:
        self.exchange([(peer, tensor)], [])

    def again(self) -> Links:
        return SocketLinks(more_sockets(self._sockets, self._rank, self._timeout), self._rank, self._timeout)

    def close(self) -> None:
        for link in self._sockets.values():
            link.close()


class PartLinks:
    """Links some neighbouring ranks of a group by the group's own links: peer 0 is `first` there. They are the group's
    to close."""

    def __init__(self, links: Links, first: int) -> None:
        self._links = links
        self._first = first

    def exchange(self, sends: Transfers, receives: Transfers) -> None:
        first = self._first
        self._links.exchange([(first + peer, tensor) for peer, tensor in sends],
                             [(first + peer, tensor) for peer, tensor in receives])

    def send(self, peer: int, tensor: Tensor) -> None:
        self._links.send(self._first + peer, tensor)

    def again(self) -> Links:
        return PartLinks(self._links.again(), self._first)

    def close(self) -> None:
        """Leave them to the whole group."""


class CollectiveLinks:
    """Exchanges by torch.distributed with gloo, over TCP. The rendezvous is where rank 0 listens."""

    def __init__(self, rendezvous: str, rank: int, world_size: int, timeout: float, is_local: bool) -> None:
        if is_local:
            # gloo would look the host's own name up, which fails or finds an outer interface.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback_interface())
        store = _store(rendezvous, rank, world_size, timedelta(seconds=timeout))
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout))
        self._begin(timeout, None)

    def _begin(self, timeout: float, group: Any) -> None:
        self._timeout = timeout
        self._group = group
        self._sent: list[tuple[Any, Tensor]] = []

    def exchange(self, sends: Transfers, receives: Transfers) -> None:
        # All are started before any is awaited, so no two ranks wait for each other's turn.
        works = [dist.isend(tensor, peer, group=self._group) for peer, tensor in sends if tensor.numel()]
        works += [dist.irecv(tensor, peer, group=self._group) for peer, tensor in receives if tensor.numel()]
        for work in works:
            assert work is not None, "a rank outside the group cannot exchange"
            work.wait()

    def send(self, peer: int, tensor: Tensor) -> None:
        # gloo sends nothing before the peer asks, so the tensor is kept until then.
        self._sent = [(work, kept) for work, kept in self._sent if not work.is_completed()]
        if tensor.numel():
            self._sent.append((dist.isend(tensor, peer, group=self._group), tensor))

    def again(self) -> Links:
        return OtherCollectiveLinks(self._timeout)

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()


class OtherCollectiveLinks(CollectiveLinks):
    """Exchanges as the `CollectiveLinks` that were made before, beside them: another thread may use these."""

    def __init__(self, timeout: float) -> None:
        self._begin(timeout, dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout)))


def _store(rendezvous: str, rank: int, world_size: int, timeout: timedelta) -> Any:
    """Returns the store by which the ranks find one another. torch's own would listen on all interfaces.

    Raises OSError if rank 0 can't listen.
    """
    address = urlsplit(rendezvous)
    host, port = address.hostname or "", address.port or 0
    fd = _listen(host, port) if rank == 0 else None
    store = dist.TCPStore  # type: ignore[attr-defined]
    return store(host, port, world_size, rank == 0, timeout, master_listen_fd=fd)


def _listen(host: str, port: int) -> int:
    """Returns the file descriptor of a socket that listens at this address alone."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family).detach()
    except OSError as error:
        raise OSError(f"the shards cannot meet at {host} port {port} (--master-addr, --master-port): "
                      f"{os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror}") from error


def _call(path: Path, rank: int, deadline: float) -> socket.socket:
    """Connect to a lower rank, which may not listen yet, and say who is calling."""
    while True:
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(str(path))
            if not peers.is_trusted(user := peers.user_of(link)):
                link.close()
                raise ValueError(f"rendezvous {path}: user {user} listens there, who is neither this rank's nor root")
            link.sendall(_RANK.pack(rank))
            return link
        except (FileNotFoundError, ConnectionRefusedError) as error:
            link.close()
            if time.monotonic() > deadline:
                raise PeerLost(f"no other rank came to {path}") from error
            time.sleep(RETRY_SECONDS)


def _answer(listener: socket.socket, deadline: float) -> tuple[int, socket.socket]:
    """Wait for the next of the higher ranks to call, not for other users; returns it, and the link to it."""
    while True:
        listener.settimeout(max(RETRY_SECONDS, deadline - time.monotonic()))
        try:
            link, _ = listener.accept()
        except TimeoutError as error:
            raise PeerLost(f"a rank has not come to {listener.getsockname()}") from error
        if peers.is_trusted(peers.user_of(link)):
            break
        link.close()
    data = bytearray(_RANK.size)
    link.setblocking(True)
    _receive(link, memoryview(data))
    return _RANK.unpack(data)[0], link


def _receive(link: socket.socket, target: memoryview) -> None:
    while len(target):
        # TLS gives a record of at most 16 KiB at once, and takes no flags.
        received = (link.recv_into(target) if isinstance(link, ssl.SSLSocket)
                    else link.recv_into(target, len(target), socket.MSG_WAITALL))
        if not received:
            raise ConnectionError("it closed its end")
        target = target[received:]


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


def _loopback_interface() -> str:
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")
