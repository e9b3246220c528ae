"""Stages of processes: what they hand on, that no rank waits in a circle, and what comes beside it."""

import threading
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.bench.programs.children import free_port
from penstock.shard.communication.distributed import Group, connect
from penstock.shard.communication.links import SocketLinks, meet
from penstock.shard.communication.stages import ON_THE_WAY, Stages
from tests.shard.spawned_ranks import Results, run_ranks

KINDS = ("memory", "sockets", "tcp")
NUM_STEPS = 40
SIZES = (3, 1 << 19)                     # numbers: one fits into a pipe, one does not
SECONDS = 30


def join(kind: str, folder: Path, rank: int, world_size: int) -> Group:
    if kind == "sockets":
        return Group(rank, world_size, SocketLinks(meet(folder / kind, rank, world_size, SECONDS), rank, SECONDS))
    port = (folder / "port").read_text()
    return connect(f"tcp://localhost:{port}" if kind == "tcp" else f"file://{folder}/{kind}", rank, world_size, SECONDS)


def pass_through(stages: Stages, step: int, size: int) -> Tensor | None:
    """A number for each stage is added on the way; returned by the last."""
    x = torch.full((size,), float(step)) if stages.is_first else stages.receive((size,), torch.float32)
    x += stages.number + 1
    if stages.is_last:
        return x
    stages.hand_on(x)
    return None


def work(count: int, rank: int, world_size: int, folder: Path, barrier: Barrier) -> Results:
    results: Results = {}
    for kind in KINDS:
        group = join(kind, folder, rank, world_size)
        stages = Stages(group, count)
        beside = group.again()
        agreed: list[list[int]] = []
        thread = threading.Thread(target=agree, args=(beside, agreed))
        thread.start()
        results[kind] = run(stages)
        thread.join(SECONDS)
        results[kind]["agreed"] = agreed
        # What is not fetched is first in line: nothing else of the whole group may come before.
        stages.catch_up()
        results[kind]["everyone"] = group.all_gather(torch.tensor([rank])).flatten()
        results[kind]["stage"] = stages.group.all_gather(torch.tensor([rank])).flatten()
        barrier.wait()
        group.close()
        beside.close()
    return results


def agree(beside: Group, agreed: list[list[int]]) -> None:
    for number in range(NUM_STEPS):
        agreed.append(beside.all_gather(torch.tensor([number * 10 + beside.rank])).flatten().tolist())


def run(stages: Stages) -> Results:
    """Every tenth step the first stage waits for what was sampled; the steps between it runs ahead."""
    ends, learnt, lag = [], [], []
    for step in range(NUM_STEPS):
        if step % 10 == 9:
            stages.catch_up()
        out = pass_through(stages, step, SIZES[step % 2])
        if out is not None:
            ends.append(float(out.unique()))
        tokens = torch.arange(step, step + 5) if step != 20 else torch.arange(ON_THE_WAY)
        if stages.answers:
            stages.tell(tokens)
        else:
            found = torch.empty_like(tokens)
            stages.learn(found, partial(learnt.append, found))
            lag.append(step + 1 - len(learnt))
    stages.catch_up()
    return {"ends": ends, "learnt": [each.tolist() for each in learnt], "lag": lag}


@pytest.fixture(
    scope="module", params=[(2, 2), *(pytest.param(sizes, marks=pytest.mark.slow) for sizes in ((3, 3), (2, 4)))],
    ids=lambda sizes: f"{sizes[0]} of {sizes[1]}")
def sizes(request: pytest.FixtureRequest) -> tuple[int, int]:
    count, world_size = request.param
    return count, world_size


@pytest.fixture(scope="module")
def ranks(sizes: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    count, world_size = sizes
    folder = tmp_path_factory.mktemp("stages")
    (folder / "port").write_text(str(free_port()))
    return run_ranks(partial(work, count), world_size, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_all_comes_through_in_order(ranks: list[Results], sizes: tuple[int, int], kind: str) -> None:
    count, world_size = sizes
    width = world_size // count
    added = count * (count + 1) / 2
    tokens = [list(range(ON_THE_WAY)) if step == 20 else list(range(step, step + 5)) for step in range(NUM_STEPS)]
    for rank, results in enumerate(each[kind] for each in ranks):
        stage = rank // width
        assert results["ends"] == ([step + added for step in range(NUM_STEPS)] if stage == count - 1 else [])
        assert results["learnt"] == (tokens if stage == 0 else [])
        assert results["everyone"].tolist() == list(range(world_size))
        assert results["stage"].tolist() == list(range(stage * width, (stage + 1) * width))
        assert results["agreed"] == [[number * 10 + peer for peer in range(world_size)] for number in range(NUM_STEPS)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_stage_runs_ahead_as_far_as_is_safe(ranks: list[Results], sizes: tuple[int, int], kind: str) -> None:
    count, _ = sizes
    lag = ranks[0][kind]["lag"]
    assert max(lag) == count
    assert lag[20] == 0                  # so many tokens would not fit on the way


def test_a_number_that_does_not_divide_the_ranks() -> None:
    with pytest.raises(ValueError, match="--pipeline-parallel-size 3 does not divide --num-shard 4"):
        Stages(Group(0, 4), 3)
