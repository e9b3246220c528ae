"""Deadlines where there are several groups."""

import asyncio
import time
from dataclasses import replace

import pytest

from penstock.router.engine.engine import Engine
from penstock.router.engine.errors import DeadlineTooShort
from penstock.router.scheduling.promise import Deadline
from penstock.router.scheduling.speculation.step_cost import StepCost
from tests.router.groups.test_groups import asked, scene
from tests.scripted_engine import collect, submit


def slow_down(engine: Engine) -> None:
    engine._scheduler.promises.pace._cost = cost = StepCost()
    cost.observe(1, 10.0)


async def test_the_group_that_can_meet_a_deadline_gets_the_request() -> None:
    """The other one has less to do, but the answer would take long there."""
    async with scene("slow") as made:
        fast = made.add("fast")
        while not fast.engine.has_group:
            await asyncio.sleep(0)
        slow = made.members["slow"]
        slow_down(slow.engine)
        request = replace(asked(10), deadline=Deadline(time.monotonic() + 60.0, 60_000))
        streams = [submit(made.groups, replace(request, input_ids=(number, *request.input_ids))) for number in range(4)]
        await asyncio.gather(*map(collect, streams))
        assert {stream.finish_reason for stream in streams} == {"length"}
        slow_down(fast.engine)
        with pytest.raises(DeadlineTooShort):
            submit(made.groups, request)
        assert not fast.engine.num_requests
