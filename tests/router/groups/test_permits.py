"""Permits for requests in the router."""

import pytest

from penstock.router.errors import Overloaded
from tests.fakes import LIMITS, ScriptedFleet
from tests.scripted_engine import running_groups, shifting


async def test_permits_run_out_and_come_back() -> None:
    async with running_groups(ScriptedFleet(shifting)) as groups:
        permits = [groups.permit() for _ in range(LIMITS.max_concurrent_requests)]
        for permit in permits:
            await permit.__aenter__()
        with pytest.raises(Overloaded, match="Model is overloaded"):
            await groups.permit().__aenter__()
        await permits[0].__aexit__(None, None, None)
        async with groups.permit():
            pass


async def test_permits_for_several_answers() -> None:
    async with running_groups(ScriptedFleet(shifting)) as groups:
        most = LIMITS.max_concurrent_requests
        async with groups.permit(most - 2):
            with pytest.raises(Overloaded):
                await groups.permit(3).__aenter__()
            async with groups.permit(2):
                pass
        async with groups.permit(most):
            pass
