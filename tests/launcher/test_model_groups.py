"""Which models' shards run, whatever is ordered while others start and end: with keepers that a test ends."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.launcher.group import Loss
from penstock.launcher.model_groups import Leaving, ModelGroup, ModelGroups
from penstock.launcher.supervisor import NoGroup
from penstock.router.models.orders import OrderPipe, Orders
from penstock.router.notices import Notice, NoticePipe
from tests.eventually import until


class Keeper:
    """Stands for the keeper of shards, which notes that they run, and takes its time to end them."""

    def __init__(self) -> None:
        self.runs = 0
        self.is_running = False
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.lost: asyncio.Future[Loss] = asyncio.get_running_loop().create_future()

    async def keep(self, end: asyncio.Future[None]) -> Loss | None:
        self.runs, self.is_running = self.runs + 1, True
        try:
            ends: list[asyncio.Future[Any]] = [end, self.lost]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await self.may_end.wait()
            return None if end.done() else self.lost.result()
        finally:
            self.is_running = False
            self.lost = asyncio.get_running_loop().create_future()


class Running:
    """The groups of the models `a` and `b` beside a first, the router's orders and what it is told of `a`."""

    def __init__(self, orders: Orders, notices: NoticePipe) -> None:
        self.orders = orders
        self.a, self.b = Keeper(), Keeper()
        self._notices = notices

    def told(self) -> bytes:
        return os.read(self._notices.fd, 9)


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    pipe, notices, leaving = OrderPipe(), NoticePipe(), Leaving()
    server = Running(Orders(pipe.fd), notices)
    groups = {"a": ModelGroup("a", server.a, notices, leaving), "b": ModelGroup("b", server.b, notices, leaving)}
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    keeping = asyncio.create_task(ModelGroups(NoGroup(), groups, pipe).keep(end))
    yield server
    end.set_result(None)
    assert await keeping is None
    assert not server.a.is_running
    assert not server.b.is_running
    pipe.close()
    notices.close()


async def test_shards_run_from_a_load_to_an_unload() -> None:
    async with running() as server:
        for number in (1, 2):
            server.orders.load("a")
            server.orders.load("a")
            await until(lambda: server.a.is_running)
            server.orders.unload("a")
            assert await asyncio.to_thread(server.told) == Notice.LEFT
            assert not server.a.is_running
            assert (server.a.runs, server.b.runs) == (number, 0)
            server.orders.unload("a")
            assert await asyncio.to_thread(server.told) == Notice.LEFT, "nothing ran"
        server.orders.load("b")
        await until(lambda: server.b.is_running)


async def test_shards_start_when_those_that_leave_have_left_their_memory() -> None:
    async with running() as server:
        server.orders.load("a")
        await until(lambda: server.a.is_running)
        server.a.may_end.clear()
        server.orders.unload("a")
        server.orders.load("b")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not server.b.is_running
        server.a.may_end.set()
        await until(lambda: server.b.is_running and not server.a.is_running)


async def test_what_is_unloaded_before_it_has_started_does_not_start() -> None:
    async with running() as server:
        server.orders.load("a")
        server.orders.unload("a")
        server.orders.load("b")
        await until(lambda: server.b.is_running)
        assert not server.a.runs


async def test_shards_that_are_lost_for_good_are_told_of_and_may_be_ordered_again() -> None:
    async with running() as server:
        server.orders.load("a")
        await until(lambda: server.a.is_running)
        server.a.lost.set_result(Loss(causes=(), has_stepped=False, is_refusal=True, is_from_outside=False))
        await until(lambda: not server.a.is_running)
        assert server.told() == Notice.GIVEN_UP
        server.orders.unload("a")  # as the router does with what could not be loaded
        for name in "ab":
            server.orders.load(name)
        await until(lambda: server.a.is_running and server.b.is_running)
