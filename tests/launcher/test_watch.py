"""What counts as a hang: a watch over scripted answers, at scripted times."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.launcher import watch
from penstock.launcher.watch import Watch
from penstock.router.fleet.client import Health
from penstock.router.fleet.errors import FleetError

Look = tuple[float, Health | None]
See = Callable[..., Awaitable[Watch]]


class Script:
    """A shard, and the clock: each look is the time at which the next answer comes, or fails to come."""

    def __init__(self, looks: tuple[Look, ...]) -> None:
        self._looks = iter(looks)
        self._now = 0.0
        self.is_over = asyncio.Event()

    def monotonic(self) -> float:
        return self._now

    async def health(self, max_seconds: float) -> Health:
        look = next(self._looks, None)
        if look is None:
            self.is_over.set()
            return await asyncio.get_running_loop().create_future()
        self._now, health = look
        if health is None:
            raise FleetError(f"no answer within {max_seconds:g} s")
        return health


@pytest.fixture
def see(monkeypatch: pytest.MonkeyPatch) -> See:
    """await see(60, *looks): the watch, with that limit, after the looks or once it has found a hang."""
    async def run(step_timeout: float, *looks: Look, is_ready: bool = False) -> Watch:
        script = Script(looks)
        monkeypatch.setattr(watch, "time", script)
        monkeypatch.setattr(watch, "POLL_SECONDS", 0.0)
        made = Watch(script, step_timeout, is_ready=lambda: is_ready)
        over = asyncio.create_task(script.is_over.wait())
        await asyncio.wait([made.hung, over], return_when=asyncio.FIRST_COMPLETED, timeout=10)
        for task in (made.hung, over):
            task.cancel()
        await asyncio.wait([made.hung, over])
        return made
    return run


def idle(num_steps: int = 0) -> Health:
    return Health(num_steps, num_steps, 0.0)


def in_step(number: int, age: float) -> Health:
    return Health(number, number - 1, age)


def every_second(first: int, last: int, health: Callable[[float], Health | None]) -> list[Look]:
    """Looks from one time to the other; `health` gets the seconds since the look before them."""
    return [(float(now), health(now - first + 1)) for now in range(first, last + 1)]


async def test_step_is_a_hang_once_it_is_older_than_allowed(see):
    looks = every_second(1, 60, lambda age: in_step(3, age))
    assert not (await see(60, *looks)).is_hung
    assert not (await see(60, *looks, (61, idle(3)))).is_hung
    assert not (await see(60, *looks, (61, in_step(4, 0.5)))).is_hung
    found = await see(60, *looks, (61, in_step(3, 61)))
    assert found.is_hung
    assert found.finding == "has been in step 3 for 61.0 s"


async def test_silence_is_a_hang_once_it_is_longer_than_allowed(see):
    looks = [(1, idle()), *every_second(2, 61, lambda age: None)]
    assert not (await see(60, *looks)).is_hung
    assert not (await see(60, *looks, (62, idle()), (63, None))).is_hung
    found = await see(60, *looks, (62, None))
    assert found.is_hung
    assert found.finding == "has not answered for 61.0 s"


async def test_shard_may_load_for_as_long_as_it_likes(see):
    found = await see(60, *every_second(1, 1000, lambda age: None))
    assert not found.is_hung
    assert not found.has_listened
    assert found.finding == ""


async def test_age_that_the_shard_gives_holds_for_a_step_that_began_between_two_looks(see):
    found = await see(60, (1, idle()), (3, in_step(1, 0.25)))
    assert found.finding == "has been in step 1 for 0.2 s"


@pytest.mark.parametrize("after", [in_step(3, 1005), idle(3), in_step(9, 0.1), None])
async def test_pause_of_the_launcher_or_of_the_whole_machine_is_no_hang(see, after):
    """Frozen with a container, a step is as old as the pause when all go on; a first answer may come late, too."""
    looks = [*every_second(1, 5, lambda age: in_step(3, age)), (1005, after)]
    assert not (await see(10, *looks)).is_hung
    assert (await see(10, *looks, *every_second(1006, 1016, lambda age: None))).is_hung


async def test_a_shard_that_is_ready_must_answer(see):
    """Also if it never did: it may hang before it is first asked."""
    looks = every_second(1, 62, lambda age: None)
    assert not (await see(60, *looks)).is_hung
    assert not (await see(60, *looks[:61], is_ready=True)).is_hung, "it became ready during the first look"
    found = await see(60, *looks, is_ready=True)
    assert found.is_hung
    assert found.finding == "has not answered for 61.0 s"


STOPPED_DURING_LOOKS = """
import asyncio, sys
from penstock.launcher.watch import watched

async def stop_during_a_look(address):
    looked = asyncio.Event()

    async def health(request, context):
        looked.set()
        await asyncio.sleep(60)

    async with watched(address, 60):
        import grpc  # as the watch does, after it has set the environment
        shard = grpc.aio.server()
        calls = {"Health": grpc.unary_unary_rpc_method_handler(health)}
        shard.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("penstock.shard.v2.Shard", calls),))
        shard.add_insecure_port(address)
        await shard.start()
        await looked.wait()
        await shard.stop(0)
        await asyncio.sleep(0.05)

for number in range(10):  # gRPC, when not quiet, writes a line in most of them
    asyncio.run(stop_during_a_look(f"{sys.argv[1]}-{number}"))
"""


def test_grpc_writes_no_line_when_shards_stop_during_looks(tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    ended = subprocess.run([sys.executable, "-c", STOPPED_DURING_LOOKS, f"unix:{tmp_path}/shard"], env=variables,
                           capture_output=True, text=True, timeout=60, check=True)
    assert not re.findall(r"^[IWEF]\d{4} .*", ended.stderr, re.MULTILINE)
