"""Links the ranks of several machines: TLS over TCP between machines, Unix sockets within each.

Ranks of different machines find one another at addresses that their launchers have agreed on. They name the generation
of the group, which is new whenever it starts, so that one that is left over from an earlier start meets nobody. torch's
gloo could encrypt, too, but torch's wheels are built without that, and its store never does.
"""

import hashlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penstock.shard.communication.errors import PeerLost
from penstock.shard.communication.links import BUFFER_BYTES, Links, SocketLinks, meet
from penstock.system import addresses
from penstock.system.wire_tls import WireTls

RETRY_SECONDS = 0.05
GREETING_SECONDS = 5.0
"""How long one who calls may take to show a certificate and to say who it is."""
GENERATION_BYTES = 32
_GREETING = struct.Struct(f"<{GENERATION_BYTES}sI")
_WELCOME = b"w"


@dataclass(frozen=True, slots=True)
class Network:
    """How the ranks of several machines meet: `exchanges` has the address of each rank, in rank order, `generation`
    names this start of the group, and `shards_here` is how many ranks each machine has, consecutive ones."""

    exchanges: tuple[str, ...]
    generation: str
    shards_here: int
    tls: WireTls | None

    def machine_of(self, rank: int) -> int:
        return rank // self.shards_here


def connect_machines(
    path: Path | None, network: Network, rank: int, world_size: int, timeout: float
) -> "MachineLinks":
    """Meets the other ranks, those of this machine at `path`, and returns the links to all.

    Raises ValueError if an address can't be listened at, PeerLost if a rank has not come within `timeout` seconds.
    """
    first = network.machine_of(rank) * network.shards_here
    sockets: dict[int, socket.socket] = {}
    if network.shards_here > 1:
        assert path is not None, "the ranks of one machine meet at a path"
        local = meet(path, rank - first, network.shards_here, timeout)
        sockets = {first + peer: link for peer, link in local.items()}
    strangers = [peer for peer in range(world_size) if network.machine_of(peer) != network.machine_of(rank)]
    with _listening(network.exchanges[rank]) as listener:
        deadline = time.monotonic() + timeout
        for peer in (each for each in strangers if each < rank):
            sockets[peer] = _call(network, rank, peer, deadline)
        missing = {each for each in strangers if each > rank}
        while missing:
            if found := _answer(listener, network, missing, deadline):
                peer, link = found
                missing.discard(peer)
                sockets[peer] = link
    for peer in strangers:
        _set_up(sockets[peer], timeout)
    return MachineLinks(sockets, rank, timeout, partial(_meet_again, path, network, rank, world_size, timeout))


class MachineLinks(SocketLinks):
    """Exchanges over the sockets of `connect_machines`; `meet_again` makes more of them."""

    def __init__(
        self, sockets: Mapping[int, socket.socket], rank: int, timeout: float, meet_again: Callable[[], Links]
    ) -> None:
        super().__init__(sockets, rank, timeout)
        self._meet_again = meet_again

    def again(self) -> Links:
        return self._meet_again()


def _meet_again(path: Path | None, network: Network, rank: int, world_size: int, timeout: float) -> MachineLinks:
    """Meets the same ranks once more, at the same addresses, under another name: those who are still at the first
    meeting answer nobody who calls for this one."""
    generation = hashlib.sha256(f"{network.generation}\nagain".encode()).hexdigest()[:GENERATION_BYTES]
    again = None if path is None else path.with_name(f"{path.name}-again")
    return connect_machines(again, replace(network, generation=generation), rank, world_size, timeout)


def _listening(address: str) -> socket.socket:
    host, port = addresses.split(address)
    try:
        family, *_, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(found[:2], family=family)
    except OSError as error:
        raise ValueError(f"the shards of several machines exchange at {address}, and it cannot be listened at: "
                         f"{error.strerror or error}") from error


def _call(network: Network, rank: int, peer: int, deadline: float) -> socket.socket:
    """Connects to a lower rank, which may not listen yet, or may be busy with others."""
    while True:
        try:
            plain = socket.create_connection(addresses.split(network.exchanges[peer]), GREETING_SECONDS)
            with _closing_if_it_fails(plain):
                link = _protected(plain, network.tls, is_server=False)
                with _closing_if_it_fails(link):
                    link.sendall(_GREETING.pack(network.generation.encode(), rank))
                    if link.recv(len(_WELCOME)) == _WELCOME:
                        return link
                    raise ConnectionError("it belongs to another start of the group, or is another's")
        except ssl.SSLCertVerificationError as error:
            raise ValueError(f"rank {peer} at {network.exchanges[peer]} shows no certificate that this group's CA has "
                             f"signed for the name {network.tls and network.tls.name}: {error}") from error
        except OSError as error:
            if time.monotonic() > deadline:
                raise PeerLost(f"rank {peer} at {network.exchanges[peer]} does not answer: {error}") from error
            time.sleep(RETRY_SECONDS)


def _answer(
    listener: socket.socket, network: Network, missing: set[int], deadline: float
) -> tuple[int, socket.socket] | None:
    """Waits for one who calls; returns which of the missing ranks it is and the link to it, or None for anybody else.
    """
    listener.settimeout(max(RETRY_SECONDS, deadline - time.monotonic()))
    try:
        plain, _ = listener.accept()
    except TimeoutError as error:
        raise PeerLost(f"the ranks {sorted(missing)} have not come to {listener.getsockname()}") from error
    plain.settimeout(GREETING_SECONDS)
    with suppress(OSError), _closing_if_it_fails(plain):
        link = _protected(plain, network.tls, is_server=True)
        with _closing_if_it_fails(link):
            generation, peer = _GREETING.unpack(_read(link, _GREETING.size))
            if generation.rstrip(b"\0") != network.generation.encode() or peer not in missing:
                raise ConnectionError("it is none of those who are missing")
            link.sendall(_WELCOME)
            return peer, link
    return None


class _closing_if_it_fails:
    """Closes a socket if the block raises."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self._link.close()


def _protected(link: socket.socket, tls: WireTls | None, is_server: bool) -> socket.socket:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is None:
        return link
    context = tls.context(is_server)
    if is_server:
        context.num_tickets = 0  # nobody resumes, and they would come where tensors are awaited
    return context.wrap_socket(link, server_side=is_server, server_hostname=None if is_server else tls.name)


def _read(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("it closed its end")
        data += part
    return data


def _set_up(link: socket.socket, timeout: float) -> None:
    """Lets a link wait for `timeout` seconds, and break when its wire is cut while nothing is under way: the system
    asks the other machine's system whether it is there, however long the rank computes.

    What is under way is given no time of its own: the system would count that in which the other rank computes, and
    takes nothing, as if the wire were cut. The launchers, which notice a cut wire themselves, end the shards then.
    """
    seconds = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
    # Python's TLS asks again for ever when the system says that it has waited for long enough.
    link.settimeout(timeout if isinstance(link, ssl.SSLSocket) else None)
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES), (socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds),
        (socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)):
        link.setsockopt(level, option, value)
