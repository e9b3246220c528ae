"""The arrival numbers of requests, by which they come before others or pass them."""

from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.scheduling.priorities import BACKGROUND, REQUESTS_PER_LEVEL
from tests.fakes import ScriptedFleet
from tests.scripted_engine import running_groups, shifting, submit


async def test_lines_of_batches_age_no_requests() -> None:
    """They come between a request of a higher priority and one that passes it."""
    async with running_groups(ScriptedFleet(shifting)) as groups:
        priorities = [1, *[BACKGROUND] * REQUESTS_PER_LEVEL, 0]
        for priority in priorities:
            submit(groups, Request(input_ids=(10, 11), sampling=Sampling(), max_new_tokens=4, priority=priority))
        waiting = groups.members[0].engine._scheduler._waiting
        assert [each.priority for each in waiting] == sorted(priorities)
