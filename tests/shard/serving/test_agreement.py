"""What two ranks make of their orders: real links between two threads, each of which is a rank."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.shard.communication.distributed import Group
from penstock.shard.communication.links import SocketLinks, meet
from penstock.shard.serving.agreement import Agreement

TIMEOUT = 20.0


def reached(folder: Path, orders: tuple[bytes, bytes]) -> list[bool]:
    """Returns whether each rank runs the plan that it holds."""
    def reach(rank: int) -> bool:
        group = Group(rank, 2, SocketLinks(meet(folder / "meet", rank, 2, TIMEOUT), rank, TIMEOUT))
        try:
            return Agreement(group).reach(orders[rank], opens_stream=False, stream_ended=threading.Event())
        finally:
            group.close()

    with ThreadPoolExecutor(2) as ranks:
        return list(ranks.map(reach, range(2)))


@pytest.mark.parametrize(("orders", "is_common"), [
    ((b"a plan", b"a plan"), True), ((b"a plan", b"b plan"), False), ((b"a plan", b"a longer plan"), False),
])
def test_a_plan_runs_if_both_ranks_hold_it_to_the_byte(
    tmp_path: Path, orders: tuple[bytes, bytes], is_common: bool
) -> None:
    assert reached(tmp_path, orders) == [is_common, is_common]
