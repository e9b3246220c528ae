"""Requests wait for a group that is away, but not for ever."""

import asyncio

import pytest

from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.errors import Unhealthy
from tests.fakes import ScriptedFleet
from tests.scripted_engine import collect, running_engine, shifting, submit


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
