"""Groups of several processes: what they exchange, how they fail, and that they compute the bits of one."""

import os
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from penstock.bench.programs.children import free_port
from penstock.kernels.linear import linear, pack
from penstock.shard.communication.device_links import DeviceLinks
from penstock.shard.communication.distributed import Group, connect, tree_sum
from penstock.shard.communication.links import SocketLinks, meet
from penstock.shard.layers.decoder import Decoder
from tests.other_user import OTHER_USER, only_root, other_user
from tests.shard.spawned_ranks import Results, run_ranks
from tests.tiny_models import make_tiny, prompt_logits, random_ids

MODELS: dict[str, dict[str, Any]] = {
    "float32": {"heads": 8, "kv_heads": 8, "head_dim": 16},
    "bfloat16, odd vocabulary": {"heads": 8, "kv_heads": 8, "head_dim": 32, "dtype": torch.bfloat16, "vocab": 161},
    "float16, biases": {"heads": 8, "kv_heads": 8, "head_dim": 80, "dtype": torch.float16, "has_bias": True},
    "bfloat16, tied": {"heads": 16, "kv_heads": 8, "head_dim": 48, "dtype": torch.bfloat16, "tied": True},
}
THREE_WAYS: dict[str, Any] = {"heads": 6, "kv_heads": 3, "hidden": 96, "vocab": 161}  # a model for three ranks
IDS = random_ids(40, 160)
HANG_SECONDS = 1.0
KINDS = ("memory", "sockets", "tcp")


def logits_of(folder: Path, names: list[str], group: Group) -> dict[str, Tensor | None]:
    return {name: prompt_logits(Decoder.load(folder / name, None, group), IDS) for name in names}


def partial_of(rank: int) -> Tensor:
    return random_floats(rank, 5, 7)


def random_floats(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def work_of_two(rank: int, world_size: int, folder: Path, barrier: Barrier) -> Results:
    results: Results = {}
    for place, kind in enumerate(KINDS):
        group = join(kind, 2 * place, folder, rank, timeout=HANG_SECONDS)
        results[kind] = exchanges(group)
        if rank == 0:
            results[f"hang by {kind}"] = failure_of(group)
        barrier.wait()
        group.close()
        # With the default timeout, so that it is not what ends the wait.
        group = join(kind, 2 * place + 1, folder, rank)
        if rank == 0:
            results[f"death by {kind}"] = failure_of(group)
        group.close()
    results["interface"] = os.environ["GLOO_SOCKET_IFNAME"]
    group = connect(f"file://{folder}/rendezvous", rank, world_size)
    results["logits"] = logits_of(folder, list(MODELS), group)
    group.close()
    links = DeviceLinks("gloo", torch.device("cpu"), rank, world_size, 120.0, folder / "devices")
    results["logits by devices"] = logits_of(folder, list(MODELS), Group(rank, world_size, None, links))
    return results


def exchanges(group: Group) -> Results:
    rank = group.rank
    results: Results = {}
    results["gathered"] = [group.all_gather(x) for x in tensors_of(rank)]
    results["sum"] = group.sum(partial_of(rank))
    columns = torch.arange(21).view(3, 7).float()
    results["columns"] = group.gather_columns(columns[:, group.part(7)], 7)
    results["no columns"] = group.gather_columns(torch.empty(0, 4 - rank), 7)
    results["broadcast"] = torch.arange(3) + 10 * rank
    group.broadcast(results["broadcast"])
    large = torch.arange(1 << 20) + rank  # more than a socket's buffer or a pipe holds
    results["large"] = [torch.equal(part, large - rank + peer) for peer, part in enumerate(group.all_gather(large))]
    return results


def join(kind: str, place: int, folder: Path, rank: int, timeout: float = 120.0) -> Group:
    """A group of two, met at a place that is used once."""
    if kind == "sockets":
        return Group(rank, 2, SocketLinks(meet(folder / f"{place}", rank, 2, timeout), rank, timeout))
    port = (folder / "ports").read_text().split()[place]
    return connect(f"tcp://localhost:{port}" if kind == "tcp" else f"file://{folder}/{place}", rank, 2, timeout)


def failure_of(group: Group) -> tuple[str, float]:
    began = time.monotonic()
    with pytest.raises(RuntimeError) as error:
        group.all_gather(torch.ones(3))
    return str(error.value), time.monotonic() - began


def tensors_of(rank: int) -> list[Tensor]:
    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8)
    return [torch.tensor([[rank, 2], [3, 4]], dtype=dtype).t() for dtype in dtypes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("group")
    for name, sizes in MODELS.items():
        make_tiny(folder / name, **sizes)
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Tensor | None]:
    return logits_of(folder, list(MODELS), Group())


@pytest.fixture(scope="module")
def two(folder: Path) -> list[Results]:
    (folder / "ports").write_text(" ".join(str(free_port()) for _ in range(2 * len(KINDS))))
    return run_ranks(work_of_two, 2, folder)


@pytest.mark.parametrize("logits", ["logits", "logits by devices"])
@pytest.mark.parametrize("name", list(MODELS))
def test_two_ranks_give_the_bits_of_one(
    two: list[Results], alone: dict[str, Tensor | None], name: str, logits: str
) -> None:
    assert equal(two[0][logits][name], alone[name])
    assert two[1][logits][name] is None


@pytest.mark.parametrize("kind", KINDS)
def test_exchanges(two: list[Results], kind: str) -> None:
    for rank, results in enumerate(ranks[kind] for ranks in two):
        assert all(torch.equal(gathered, torch.stack(both))
                   for gathered, *both in zip(results["gathered"], tensors_of(0), tensors_of(1), strict=True))
        assert torch.equal(results["sum"], partial_of(0) + partial_of(1))
        assert torch.equal(results["broadcast"], torch.arange(3))
        assert results["large"] == [True, True]
        assert (results["columns"] is None) == (rank == 1)
    assert torch.equal(two[0][kind]["columns"], torch.arange(21).view(3, 7).float())
    assert two[0][kind]["no columns"].shape == (0, 7)


def test_processes_of_one_machine_meet_on_its_loopback(two: list[Results]) -> None:
    assert {results["interface"] for results in two} <= {"lo", "lo0"}


@pytest.mark.parametrize(("kind", "hang", "death"), [
    ("sockets", "rank 1 has said nothing for 1 s", "rank 1 is gone"),
    ("memory", "rank 1 has said nothing for 1 s", "rank 1 is gone"),
    ("tcp", "Timed out", "127.0.0.1"),  # who it was, over the loopback
])
def test_a_peer_that_hangs_or_dies_is_an_error(two: list[Results], kind: str, hang: str, death: str) -> None:
    message, seconds = two[0][f"hang by {kind}"]
    assert hang in message
    assert HANG_SECONDS <= seconds < 5 * HANG_SECONDS
    message, seconds = two[0][f"death by {kind}"]
    assert death in message
    assert seconds < 30


def test_a_group_of_one_exchanges_nothing() -> None:
    group = connect("", 0, 1)
    x = partial_of(0)
    assert torch.equal(group.all_gather(x), x[None])
    assert torch.equal(group.sum(x), x)
    assert group.gather_columns(x, 7) is x
    group.broadcast(x)
    group.close()
    assert not torch.distributed.is_initialized()


def test_parts() -> None:
    group = Group(1, 4)
    assert group.part(8) == slice(2, 4)
    assert [group.part(10, rank) for rank in range(4)] == [slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 10)]


@pytest.mark.parametrize("world_size", [2, 3, 4, 5, 8])
def test_tree_sum_order(world_size: int) -> None:
    """The order is that of the linear kernel's tree: the same bits where it has as many segments."""
    p = [partial_of(rank) for rank in range(world_size)]
    expected = {
        2: lambda: p[0] + p[1],
        3: lambda: (p[0] + p[1]) + p[2],
        4: lambda: (p[0] + p[1]) + (p[2] + p[3]),
        5: lambda: ((p[0] + p[1]) + (p[2] + p[3])) + p[4],
        8: lambda: ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7])),
    }
    assert torch.equal(tree_sum(torch.stack(p)), expected[world_size]())


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_partial_sums_meet_as_in_one_linear(world_size: int) -> None:
    x, weight, bias = random_floats(0, 6, 96), random_floats(1, 64, 96), random_floats(2, 64)
    group = Group(0, world_size)
    own = [group.part(96, rank) for rank in range(world_size)]
    partials = torch.stack([
        linear(x[:, part].contiguous(), pack(weight[:, part].contiguous(), 8 // world_size), partial=True)
        for part in own])
    assert torch.equal(tree_sum(partials) + bias, linear(x, pack(weight, 8), bias))


@pytest.mark.parametrize(
    ("rendezvous", "rank", "world_size", "message"),
    [
        ("file:///nowhere", 2, 2, "rank 2 is not in a group of 2: expected 0 to 1"),
        ("file:///nowhere", -1, 2, "rank -1 is not in a group of 2"),
        ("http://host:1", 0, 2, "rendezvous 'http://host:1': expected file:///path or tcp://host:port"),
        ("", 0, 2, "rendezvous '': expected"),
        ("file://store", 0, 2, "rendezvous 'file://store': expected"),
        ("tcp://localhost", 0, 2, "rendezvous 'tcp://localhost': expected"),
        ("file:///nowhere/store", 0, 2, "rendezvous /nowhere/store-0: cannot listen there"),
    ],
)
def test_refused(rendezvous: str, rank: int, world_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        connect(rendezvous, rank, world_size)


@pytest.mark.slow
def test_peers_that_do_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    for rendezvous in (f"file://{tmp_path}/rendezvous", f"tcp://localhost:{free_port()}"):
        with pytest.raises(RuntimeError, match=r"(?i)time|has not come"):
            connect(rendezvous, 0, 2, timeout=0.5)
    with pytest.raises(RuntimeError, match="no other rank came"):
        connect(f"file://{tmp_path}/rendezvous", 1, 2, timeout=0.5)
    assert not list(tmp_path.iterdir())


@only_root
def test_ranks_do_not_meet_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # the rank's, whose thread is this process's too
    path = tmp_path / "meet"
    with ThreadPoolExecutor(2) as ranks:
        lower = ranks.submit(meet, path, 0, 2, 60.0)
        while not os.access(f"{path}-0", os.F_OK) or stat.S_IMODE(os.stat(f"{path}-0").st_mode) != 0o600:
            time.sleep(0.001)
        os.chmod(f"{path}-0", 0o777)
        with other_user(tmp_path), socket.socket(socket.AF_UNIX) as stranger:
            while stranger.connect_ex("meet-0"):
                time.sleep(0.001)
            stranger.settimeout(60.0)
            assert stranger.recv(1) == b""
        upper = ranks.submit(meet, path, 1, 2, 60.0)
        with lower.result()[1] as one, upper.result()[0] as other:
            one.sendall(b"a")
            assert other.recv(1) == b"a"


@only_root
def test_ranks_do_not_call_other_users(tmp_path: Path) -> None:
    with other_user(tmp_path), socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind("meet-0")
        stranger.listen()
        os.seteuid(0)
        with pytest.raises(ValueError, match=rf"meet-0: user {OTHER_USER} listens there, who is neither this rank's"):
            meet(tmp_path / "meet", 1, 2, 60.0)
        assert not (tmp_path / "meet-1").exists()


def test_what_keeps_the_equality(tmp_path: Path) -> None:
    make_tiny(tmp_path / "even", heads=8, kv_heads=8)
    make_tiny(tmp_path / "odd", heads=2, kv_heads=2, head_dim=6)
    make_tiny(tmp_path / "three", **THREE_WAYS)
    for world_size in (1, 2, 4, 8):
        assert not Decoder.load(tmp_path / "even", None, Group(0, world_size)).inequality
    odd = Decoder.load(tmp_path / "odd", None, Group(0, 2))
    assert odd.inequality == "8 does not divide heads * dimensions = 12"
    three = Decoder.load(tmp_path / "three", None, Group(0, 3))
    assert three.inequality == "3 shards do not divide the 8 segments of a row-parallel sum"


def work_of_many(rank: int, world_size: int, folder: Path, barrier: Barrier) -> Results:
    group = connect(f"file://{folder}/rendezvous-{world_size}", rank, world_size)
    names = ["three"] if world_size == 3 else list(MODELS)
    logits = logits_of(folder, names, group)
    barrier.wait()
    group.close()
    return logits


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [4, 8])
def test_many_ranks_give_the_bits_of_one(folder: Path, alone: dict[str, Tensor | None], world_size: int) -> None:
    results = run_ranks(work_of_many, world_size, folder)
    assert [name for name in MODELS if not equal(results[0][name], alone[name])] == []


@pytest.mark.slow
def test_three_ranks_are_close_to_one(folder: Path) -> None:
    make_tiny(folder / "three", **THREE_WAYS)
    alone = logits_of(folder, ["three"], Group())
    results = run_ranks(work_of_many, 3, folder)
    torch.testing.assert_close(results[0]["three"], alone["three"], rtol=0, atol=1e-4)


def equal(logits: Tensor | None, expected: Tensor | None) -> bool:
    return logits is not None and expected is not None and torch.equal(logits, expected)
