"""Ranks of several machines that meet and exchange, each in a thread."""

import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import torch

from penstock.bench.programs.children import free_port
from penstock.shard.communication import network_links
from penstock.shard.communication.distributed import Group
from penstock.shard.communication.links import SocketLinks
from penstock.shard.communication.network_links import Network, connect_machines
from penstock.system.wire_tls import WireTls
from tests.certificates import Authority, authority


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def tls(ca: Authority) -> WireTls:
    return ca.issue("shard")


def network(number: int, tls: WireTls | None, shards_here: int = 1, generation: str = "g1") -> Network:
    return Network(tuple(f"127.0.0.1:{free_port()}" for _ in range(number)), generation, shards_here, tls)


def met(folder: Path, networks: Sequence[Network], timeout: float = 20.0) -> list[SocketLinks]:
    """Returns what each rank gets; raises what the first of them raises."""
    number = len(networks)
    with ThreadPoolExecutor(number) as pool:
        meeting = [pool.submit(connect_machines, folder / f"machine-{rank // each.shards_here}", each, rank, number,
                               timeout) for rank, each in enumerate(networks)]
        return [each.result() for each in meeting]


@pytest.mark.parametrize("is_protected", [True, False])
def test_ranks_of_two_machines_exchange(tmp_path: Path, tls: WireTls, is_protected: bool) -> None:
    common = network(4, tls if is_protected else None, shards_here=2)
    links = met(tmp_path, [common] * 4)
    groups = [Group(rank, 4, links[rank], num_local=2) for rank in range(4)]
    with ThreadPoolExecutor(4) as pool:
        parts = [torch.arange(1 << 18, dtype=torch.float32) * (rank + 1) for rank in range(4)]  # beyond all buffers
        for sums in (list(pool.map(lambda group: group.sum(parts[group.rank].view(1, -1)), groups)) for _ in range(3)):
            expected = ((parts[0] + parts[1]) + (parts[2] + parts[3])).view(1, -1)
            assert all(torch.equal(each, expected) for each in sums)
        columns = list(pool.map(lambda group: group.gather_columns(torch.full((2, 1), group.rank), 4), groups))
        assert columns[0] is not None
        assert columns[0].tolist() == [[0, 1, 2, 3]] * 2
        more = list(pool.map(lambda group: group.again(), groups))
        for sums in (list(pool.map(lambda group: group.sum(torch.ones(1, 8)), each)) for each in (more, groups)):
            assert all(torch.equal(each, torch.full((1, 8), 4.0)) for each in sums)
    for group in more:
        group.close()
    links[3].close()
    with pytest.raises(RuntimeError, match="rank 3 is gone"):
        links[0].exchange([], [(3, torch.empty(1))])
    for each in links:
        each.close()


def test_a_rank_of_another_start_meets_nobody(tmp_path: Path, tls: WireTls) -> None:
    new = network(2, tls, generation="g2")
    old = Network(new.exchanges, "g1", 1, tls)
    with pytest.raises(RuntimeError, match=r"rank 0 at .* it belongs to another start|the ranks \[1\] have not come"):
        met(tmp_path, [new, old], timeout=1.0)


def test_strangers_do_not_keep_ranks_from_meeting(
    tmp_path: Path, tls: WireTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_links, "GREETING_SECONDS", 0.5)
    common = network(2, tls)
    host, port = common.exchanges[0].split(":")
    stranger = authority(tmp_path / "other").issue("shard")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(connect_machines, None, common, 0, 2, 20.0)
        deadline = time.monotonic() + 10
        while True:
            try:
                silent = socket.create_connection((host, int(port)))
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
        with silent, socket.create_connection((host, int(port))) as loud:
            loud.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(RuntimeError, match=r"rank 0 at .* does not answer"):
                connect_machines(None, Network(common.exchanges, "g1", 1, WireTls(tls.ca, stranger.cert, stranger.key)),
                                 1, 2, 1.0)
            with pytest.raises(ValueError, match=r"rank 0 at .* shows no certificate that this group's CA has signed"):
                connect_machines(None, Network(common.exchanges, "g1", 1, WireTls(stranger.ca, tls.cert, tls.key)),
                                 1, 2, 1.0)
            second = connect_machines(None, common, 1, 2, 20.0)
        with closing(first.result()), closing(second):
            pass


def test_an_address_that_is_taken(tls: WireTls) -> None:
    common = network(2, tls)
    host, port = common.exchanges[0].split(":")
    with (socket.create_server((host, int(port))),
          pytest.raises(ValueError, match=f"exchange at {common.exchanges[0]}, and it cannot be listened at: Address")):
        connect_machines(None, common, 0, 2, 1.0)


def test_a_rank_that_says_nothing(tmp_path: Path, tls: WireTls) -> None:
    links = met(tmp_path, [network(2, tls)] * 2, timeout=1.0)
    with pytest.raises(RuntimeError, match="rank 1 has said nothing for 1 s"):
        Group(0, 2, links[0]).all_gather(torch.ones(1))
    for each in links:
        each.close()
