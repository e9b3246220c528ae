"""The links between devices: over gloo what NCCL does on GPUs, and NCCL itself in a group of one."""

from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.bench.programs.children import free_port
from penstock.kernels import dispatch
from penstock.shard.communication.device_links import DeviceLinks
from penstock.shard.communication.distributed import SHARED_SUM, Group, check_apart, connect, tree_sum
from penstock.shard.communication.links import CollectiveLinks, SocketLinks
from tests.shard.spawned_ranks import Results, run_ranks

NUM_COLUMNS = 9  # with 4 ranks: 3, 3, 3, 0
OWNERS = [0, 1, 1, 0, 1]


def floats(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows(rank: int, dtype: torch.dtype) -> Tensor:
    """Some of them are minus zero, which adding numbers would make plus zero."""
    return torch.cat([floats(10 + rank, len(OWNERS), 4), torch.full((len(OWNERS), 2), -0.0)], dim=1).to(dtype)


def large_partial(rank: int) -> Tensor:
    return floats(20 + rank, 8, SHARED_SUM // 8)


def work(rank: int, world_size: int, folder: Path, barrier: Barrier) -> Results:
    hosts = connect(f"file://{folder}/hosts", rank, world_size)
    results = {"kernels": dispatch.kernel_set(), "has sockets": isinstance(hosts._links, SocketLinks),
               "by hosts": exchanges(hosts)}
    check_apart(hosts, f"GPU {rank}")
    with pytest.raises(ValueError, match="are on one GPU") as refused:
        check_apart(hosts, f"GPU {rank // 2}")
    results["one GPU"] = str(refused.value)
    hosts.close()
    links = DeviceLinks("gloo", torch.device("cpu"), rank, world_size, 60.0, folder / "devices")
    group = Group(rank, world_size, None, links)
    results["by devices"] = exchanges(group)
    for is_deterministic in (False, True):
        dispatch.configure(is_deterministic=is_deterministic)
        partial = floats(rank, 5, 7)
        total = group.sum(partial)
        results["sum", is_deterministic] = total
        results["is overwritten", is_deterministic] = total is partial
    results["large sum"] = group.sum(large_partial(rank))
    group.close()
    group.close()
    between_hosts = CollectiveLinks(
        f"tcp://localhost:{(folder / 'port').read_text()}", rank, world_size, 60.0, is_local=True)
    links = DeviceLinks("gloo", torch.device("cpu"), rank, world_size, 60.0, None)
    group = Group(rank, world_size, between_hosts, links)
    results["by devices of several machines"] = exchanges(group)
    barrier.wait()
    if rank == 0:
        with pytest.raises(RuntimeError) as error:
            group.all_gather(torch.ones(1000))
        results["death"] = str(error.value)
    return results


def exchanges(group: Group) -> Results:
    rank = group.rank
    columns = torch.arange(3 * NUM_COLUMNS).view(3, NUM_COLUMNS).float()
    results: Results = {
        "gathered": [group.all_gather(floats(rank, 4, 3).t()), group.all_gather(torch.tensor(rank))],
        "nothing": group.all_gather(torch.empty(0, 2)),
        "columns": group.gather_columns(columns[:, group.part(NUM_COLUMNS)], NUM_COLUMNS),
        "no columns": group.gather_columns(torch.empty(0, group.width(NUM_COLUMNS)), NUM_COLUMNS),
        "rows": [group.from_owners(rows(rank, dtype), torch.tensor(OWNERS))
                 for dtype in (torch.float32, torch.bfloat16, torch.float16)],
        "broadcast": torch.arange(3) + 10 * rank,
    }
    group.broadcast(results["broadcast"])
    return results


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.slow), 4])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Results]]:
    """Each with the kernels of a GPU in the interpreter: only they add as a backend does."""
    folder = tmp_path_factory.mktemp("group")
    (folder / "port").write_text(str(free_port()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELS", "gpu")
        patch.setenv("TRITON_INTERPRET", "1")
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        yield run_ranks(work, request.param, folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["by hosts", "by devices", "by devices of several machines"])
def test_exchanges(ranks: list[Results], kind: str) -> None:
    world_size = len(ranks)
    everywhere = torch.stack([floats(rank, 4, 3).t() for rank in range(world_size)])
    for rank, results in enumerate(result[kind] for result in ranks):
        gathered, numbers = results["gathered"]
        assert torch.equal(gathered, everywhere)
        assert numbers.tolist() == list(range(world_size))
        assert results["nothing"].shape == (world_size, 0, 2)
        assert (results["columns"] is None) == (results["no columns"] is None) == (rank > 0)
        assert results["broadcast"].tolist() == [0, 1, 2]
        for found in results["rows"]:
            owned = torch.stack([rows(owner, found.dtype)[row] for row, owner in enumerate(OWNERS)])
            assert torch.equal(found.view(torch.uint8), owned.view(torch.uint8))
    first = ranks[0][kind]
    assert torch.equal(first["columns"], torch.arange(3 * NUM_COLUMNS).view(3, NUM_COLUMNS).float())
    assert first["no columns"].shape == (0, NUM_COLUMNS)


@pytest.mark.slow
def test_the_contract_decides_who_adds(ranks: list[Results]) -> None:
    """The order that is fixed, or the backend, which adds in place."""
    partials = torch.stack([floats(rank, 5, 7) for rank in range(len(ranks))])
    for results in ranks:
        assert torch.equal(results["sum", True], tree_sum(partials))
        assert torch.equal(results["large sum"], tree_sum(torch.stack([large_partial(r) for r in range(len(ranks))])))
        assert not results["is overwritten", True]
        torch.testing.assert_close(results["sum", False], partials.sum(0), rtol=1e-6, atol=1e-6)
        assert torch.equal(results["sum", False], ranks[0]["sum", False])
        assert results["is overwritten", False]


@pytest.mark.slow
def test_interpreted_kernels_meet_by_sockets(ranks: list[Results]) -> None:
    assert [(results["kernels"], results["has sockets"]) for results in ranks] == [("gpu", True)] * len(ranks)


@pytest.mark.slow
def test_a_dead_peer_is_an_error(ranks: list[Results]) -> None:
    assert "127.0.0.1" in ranks[0]["death"]


@pytest.mark.slow
def test_ranks_on_one_gpu_are_refused(ranks: list[Results]) -> None:
    """By all of them."""
    size = len(ranks)
    assert {results["one GPU"] for results in ranks} == {
        f"ranks 0, 1 are on one GPU, GPU 0: a group of {size} needs as many GPUs"}


@pytest.mark.gpu
def test_nccl(tmp_path: Path) -> None:
    """Of one rank: every exchange works, keeps to the stream and can be captured."""
    device = torch.device("cuda")
    links = DeviceLinks("nccl", device, 0, 1, 60.0, tmp_path / "devices")
    group = Group(0, 1, None, links)
    x, ids = torch.zeros(5, 8, device=device), torch.arange(3, device=device)
    owners = torch.zeros(5, dtype=torch.int64, device=device)

    def exchange() -> list[Tensor]:
        links.broadcast(ids)
        gathered = links.gather(x)
        assert gathered is not None
        return [tree_sum(links.all_gather(x)), links.transpose(x.view(1, -1)), links.sum(x.clone()), gathered[0],
                group.from_owners(x.bfloat16(), owners).float(), ids.clone()]

    exchange()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = exchange()
    for value in (1.0, 2.0):
        x.fill_(value)
        ids.fill_(int(value))
        graph.replay()
        assert [output.unique().tolist() for output in outputs] == [[value]] * len(outputs)
    graph.reset()
    group.close()
