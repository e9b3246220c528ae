"""Requests wait for a group that is away, but not for ever."""

import asyncio
import time

import pytest

from penstock.contract.sampling import Sampling
from penstock.router.engine.errors import DeadlineTooNear
from penstock.router.engine.request import Request
from penstock.router.errors import Unhealthy
from penstock.router.scheduling.promise import Deadline
from tests.fakes import ScriptedFleet
from tests.scripted_engine import collect, running_engine, shifting, submit


async def test_no_deadline_is_promised_while_the_group_is_away() -> None:
    fleet = ScriptedFleet(shifting)
    fleet.may_open.clear()
    deadline = Deadline(time.monotonic() + 60.0, 60_000)
    request = Request(input_ids=(1, 2, 3), sampling=Sampling(), max_new_tokens=5, deadline=deadline)
    async with asyncio.timeout(10), running_engine(fleet) as engine:
        with pytest.raises(DeadlineTooNear, match="for the shards are away; `deadline_ms` is 60000"):
            submit(engine, request)
        assert not engine.num_requests
        fleet.may_open.set()
        while not engine.has_group:
            await asyncio.sleep(0)
        assert len(await collect(submit(engine, request))) == 5


async def test_a_group_that_was_lost_before_it_was_opened_is_not_awaited_for_ever() -> None:
    fleet = ScriptedFleet(shifting)
    fleet.may_open.clear()
    request = Request(input_ids=(1, 2, 3), sampling=Sampling(), max_new_tokens=5)
    async with asyncio.timeout(10), running_engine(fleet, max_downtime=0.1) as engine:
        with pytest.raises(Unhealthy):
            await collect(submit(engine, request))
        with pytest.raises(Unhealthy):
            submit(engine, request)
        fleet.may_open.set()
        while not engine.has_group:
            await asyncio.sleep(0)
        assert len(await collect(submit(engine, request))) == 5
