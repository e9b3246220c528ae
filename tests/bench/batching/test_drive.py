"""Traffic of many lengths under each policy, step by step: how many steps it takes, and what memory is empty."""

import pytest

from penstock.bench.batching.drive import POLICIES, Drive
from penstock.bench.batching.timelines import Paper
from penstock.bench.batching.traffic import make_requests, room_for
from penstock.bench.batching.waste import Waste
from tests.router.scheduling.small_schedulers import make_scheduler, make_sequence, step

SLOTS, PROMPT, NEW = 8, 512, 512


def run(policy: str, gap: float) -> tuple[Drive, int]:
    """The drive, and how many steps it took."""
    shape = room_for(SLOTS, PROMPT, NEW, block_size=16, max_step_tokens=512)
    drive = Drive(make_requests(40, PROMPT, NEW, gap, vocab_size=1000), policy, shape, 5, Paper())
    return drive, sum(1 for _ in drive.steps())


@pytest.mark.parametrize("policy", POLICIES)
def test_contiguous_memory_is_mostly_empty_and_blocks_hardly(policy: str) -> None:
    """As was measured of servers before paged attention: 60 to 80 % of their memory, less than 4 % of blocks."""
    drive, _ = run(policy, gap=10)
    assert 0.6 <= drive.waste.of_contiguous <= 0.8
    assert 0 < drive.waste.of_blocks < 0.04


def test_whole_batches_take_longer() -> None:
    steps = {policy: run(policy, gap=0)[1] for policy in POLICIES}
    assert steps["continuous"] * 1.4 < steps["static"] == steps["dynamic"]


def test_who_comes_while_a_batch_runs_waits_for_its_end() -> None:
    waits = {}
    for policy in POLICIES:
        drive, _ = run(policy, gap=30)
        assert all(0 < each.first_after <= each.ended_after for each in drive.answered)
        waits[policy] = sum(each.first_after for each in drive.answered)
    assert waits["continuous"] * 5 < waits["dynamic"] < waits["static"]


def test_waste_in_numbers() -> None:
    scheduler, sequence, waste = make_scheduler(), make_sequence(1, length=6, max_new=14), Waste()
    scheduler.add(sequence)
    for _ in range(2):
        step(scheduler, 7)
        waste.observe([sequence], block_size=4)
    assert (waste.stored, waste.in_blocks, waste.contiguous) == (6 + 7, 8 + 8, 20 + 20)
    assert waste.of_blocks == pytest.approx(3 / 16)
    assert waste.of_contiguous == pytest.approx(27 / 40)
