"""What two ranks make of their orders: real links between two threads, each of which is a rank."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.shard.communication.distributed import Group
from penstock.shard.communication.links import SocketLinks, meet
from penstock.shard.serving.agreement import Agreement

TIMEOUT = 20.0


@contextmanager
def rank_of_two(folder: Path, rank: int) -> Iterator[Group]:
    """Yields a rank's group, once the other rank is there, too."""
    group = Group(rank, 2, SocketLinks(meet(folder / "meet", rank, 2, TIMEOUT), rank, TIMEOUT))
    try:
        yield group
    finally:
        group.close()


def reached(folder: Path, orders: tuple[bytes, bytes]) -> list[bool]:
    """Returns whether each rank runs the plan that it holds."""
    def reach(rank: int) -> bool:
        with rank_of_two(folder, rank) as group:
            return Agreement(group).reach(orders[rank], opens_stream=False, stream_ended=threading.Event())

    with ThreadPoolExecutor(2) as ranks:
        return list(ranks.map(reach, range(2)))


@pytest.mark.parametrize(("orders", "is_common"), [
    ((b"a plan", b"a plan"), True), ((b"a plan", b"b plan"), False), ((b"a plan", b"a longer plan"), False),
])
def test_a_plan_runs_if_both_ranks_hold_it_to_the_byte(
    tmp_path: Path, orders: tuple[bytes, bytes], is_common: bool
) -> None:
    assert reached(tmp_path, orders) == [is_common, is_common]


def test_a_stream_that_ends_while_other_ranks_are_awaited_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next stream is, though its limits are the same."""
    waits, ended = threading.Event(), threading.Event()

    def first() -> list[bool]:
        with rank_of_two(tmp_path, 0) as group:
            gather = group.all_gather
            monkeypatch.setattr(group, "all_gather", lambda proposal: (waits.set(), gather(proposal))[1])
            agreement = Agreement(group)
            return [agreement.reach(b"limits", opens_stream=True, stream_ended=ended),
                    agreement.reach(b"limits", opens_stream=True, stream_ended=threading.Event())]

    def second() -> bool:
        with rank_of_two(tmp_path, 1) as group:
            assert waits.wait(TIMEOUT)
            ended.set()
            return Agreement(group).reach(b"limits", opens_stream=True, stream_ended=threading.Event())

    with ThreadPoolExecutor(2) as ranks:
        early, late = ranks.submit(first), ranks.submit(second)
        assert early.result() == [False, True]
        assert late.result()
