"""Keeps the groups of a server of several models: the first always, the others as the router orders."""

import asyncio
import logging
from collections.abc import Mapping

from penstock.launcher.group import Loss
from penstock.launcher.resting import RestingShards
from penstock.launcher.supervisor import AnyGroup
from penstock.router.models.orders import LOAD, OrderPipe
from penstock.router.notices import Notice, NoticePipe

log = logging.getLogger(__name__)


class Leaving:
    """Counts the groups whose shards are ending, whose memory others may need."""

    def __init__(self) -> None:
        self._number = 0
        self._none = asyncio.Event()
        self._none.set()

    def begin(self) -> None:
        """Counts one more."""
        self._number += 1
        self._none.clear()

    def end(self) -> None:
        """Counts one less."""
        self._number -= 1
        if not self._number:
            self._none.set()

    async def until_none(self) -> None:
        """Waits until no shards are ending."""
        await self._none.wait()


class ModelGroup:
    """The group of a model that is loaded on demand, once those of others that are `leaving` have left; its router
    hears by `notices` when it can't be kept running, and when it has ended."""

    def __init__(self, name: str, keeper: AnyGroup, notices: NoticePipe, leaving: Leaving) -> None:
        self._name = name
        self._keeper = keeper
        self._notices = notices
        self._leaving = leaving
        self._wanted = asyncio.Event()
        self._end: asyncio.Future[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Starts the shards, once those that are to end have ended."""
        self._wanted.set()

    def stop(self) -> None:
        """Ends the shards; the router hears when they have left."""
        self._wanted.clear()
        if self._end is None:
            self._notices.send(Notice.LEFT)
        elif not self._end.done():  # they run
            self._end.set_result(None)
            self._leaving.begin()

    def close(self) -> None:
        """Ends the shards, and has no others started."""
        self.stop()
        self._is_closed = True
        self._wanted.set()

    async def run(self) -> None:
        """Runs the shards whenever they are wanted, until the group is closed."""
        while await self._wanted.wait() and not self._is_closed:
            await self._leaving.until_none()
            if not self._wanted.is_set() or self._is_closed:
                continue
            end = self._end = asyncio.get_running_loop().create_future()
            loss = await self._keeper.keep(end)
            self._end = None
            if end.done():
                self._leaving.end()
                self._notices.send(Notice.LEFT)
            elif loss is not None:
                log.error("%s, so that %s is not served", loss, self._name)
                self._wanted.clear()
                self._notices.send(Notice.GIVEN_UP)


class ModelGroups:
    """The groups of all models, and shards that rest between two loads."""

    def __init__(
        self, first: AnyGroup, others: Mapping[str, ModelGroup], orders: OrderPipe, resting: RestingShards | None = None
    ) -> None:
        self._resting = resting or RestingShards(0)
        self._first = first
        self._others = others
        self._orders = orders

    async def keep(self, end: asyncio.Future[None]) -> Loss | None:
        """Runs the shards of the first model until `end` is done, and those of others meanwhile. Returns the last loss
        of the first if to go on is of no use."""
        self._orders.follow(self._take)
        running = [asyncio.create_task(group.run(), name="group") for group in self._others.values()]
        watching = asyncio.create_task(self._resting.watch(), name="resting")
        try:
            loss = await self._first.keep(end)
            await self._resting.close()
            for group in self._others.values():
                group.close()
            await asyncio.gather(*running)
            return loss
        finally:
            for task in [*running, watching]:
                task.cancel()
            await asyncio.gather(*running, watching, return_exceptions=True)
            await self._resting.close()

    def _take(self, order: str, model: str) -> None:
        group = self._others[model]
        if order == LOAD:
            group.start()
        else:
            group.stop()
