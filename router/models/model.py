"""A model that is loaded while it is used, and what hinders that."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from penstock.contract.facts import Facts
from penstock.router.adapters.source import AdapterSource
from penstock.router.config import RouterConfig, ServedModel
from penstock.router.fleet.errors import FleetError
from penstock.router.generation.service import Service
from penstock.router.generation.services import RELOAD_SECONDS, NotLoaded
from penstock.router.limits import LimitError, Limits
from penstock.router.memory_ceiling import ceiling_of_model
from penstock.router.metrics.metrics import Metrics
from penstock.router.models.opened import Opened
from penstock.router.models.orders import Orders
from penstock.router.notices import Notice, receive
from penstock.router.text.encoding import TokenizerError
from penstock.system.arguments import InvalidArgument
from penstock.system.leftovers import is_heard

log = logging.getLogger(__name__)

RETRY_SECONDS = float(RELOAD_SECONDS)
Count = Callable[[Facts, Limits], Metrics]


class AnyOpened(Protocol):
    """The parts of the router that serve a loaded model."""

    @property
    def service(self) -> Service: ...

    async def close(self) -> None:
        """Lets go of the group, and of all that the model had."""


Open = Callable[[RouterConfig, Count, Callable[[asyncio.Task[None]], None]], Awaitable[AnyOpened]]


class State(StrEnum):
    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    FAILED = "failed"


class Model:
    """Loads and unloads a model by orders to the launcher. `open` makes the parts of the router that serve it, and
    `count` its metrics, once.

    Whoever calls `load` and `unload` sees to it that only one of both runs at a time.
    """

    def __init__(self, served: ServedModel, orders: Orders, count: Count, open: Open = Opened.open) -> None:
        self.config = served.config
        self.name = served.config.name
        self.is_pinned = served.is_pinned
        self.keep_alive = served.keep_alive
        self.state = State.UNLOADED
        self.used_at = time.monotonic()
        self.reason = ""
        """Why it could not be loaded."""
        self.num_waiting = 0
        """How many requests wait for its load."""
        self.metrics: Metrics | None = None
        self.on_loss: Callable[[Model], None] = lambda model: None
        """Is called when the model answers no more, so that it is to be unloaded."""
        self._orders = orders
        self._make_metrics = count
        self._open = open
        self._opened: AnyOpened | None = None
        self._known_adapters: Sequence[AdapterSource] = self.config.adapters
        self._removed_adapters: Sequence[str] = ()
        """The names of those that clients have unloaded."""
        self._given_up: asyncio.Future[None] | None = None
        self._failed_at = -RETRY_SECONDS
        self._num_users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._unloaded = asyncio.Event()
        self._unloaded.set()
        self._left = asyncio.Event()

    def follow(self) -> None:
        """Takes the launcher's notices of the model's shards from now on."""
        if self.config.notices_fd >= 0:
            receive(self.config.notices_fd, self._take, self._left.set)

    @property
    def has_shards(self) -> bool:
        """Whether its shards here run already, which the router before this one has had started."""
        return any(is_heard(Path(target.removeprefix("unix:"))) for target in self.config.shard_sockets)

    def forget_shards(self) -> None:
        """Has shards ended that the router before this one may have had started."""
        self._orders.unload(self.name)

    @property
    def may_be_tried(self) -> bool:
        """Whether it could not be loaded, and that was not just now."""
        return self.state is State.FAILED and time.monotonic() >= self._failed_at + RETRY_SECONDS

    @property
    def service(self) -> Service | None:
        """The service of the model while it is loaded, or is being unloaded."""
        return None if self._opened is None else self._opened.service

    @property
    def is_ready(self) -> bool:
        """Whether it is loaded."""
        return self.state is State.READY

    @property
    def is_idle(self) -> bool:
        """Whether it is loaded and no request uses it, or has waited for it and is about to."""
        return self.is_ready and not self._num_users and not self.num_waiting

    @property
    def adapters(self) -> Iterable[AdapterSource]:
        """Its adapters; of a model that is not loaded those that it will have."""
        return self._known_adapters if self._opened is None else self._opened.service.adapters

    def serves(self, name: str) -> bool:
        """Tells whether this is the name of the model, or of one of its adapters."""
        if self._opened is not None:
            return self._opened.service.serves(name)
        return name == self.name or any(name == adapter.name for adapter in self.adapters)

    def take(self) -> Service:
        """Notes one use more of the model, which is loaded."""
        assert self._opened is not None
        self._num_users += 1
        self._unused.clear()
        return self._opened.service

    def give_back(self) -> None:
        """Notes the end of a use."""
        self._num_users -= 1
        self.used_at = time.monotonic()
        if not self._num_users:
            self._unused.set()

    def check(self) -> None:
        """Raises NotLoaded if the model was tried a short while ago and could not be loaded."""
        if self.state is State.FAILED and not self.may_be_tried:
            raise NotLoaded(f"{self.name} could not be loaded: {self.reason}")

    async def load(self) -> None:
        """Loads the model. Raises NotLoaded."""
        log.info("loading %s", self.name)
        began_at, self.state = time.monotonic(), State.LOADING
        self._given_up = asyncio.get_running_loop().create_future()
        self._orders.load(self.name)
        opening = asyncio.ensure_future(self._open(self.config, self._count, self._note_end))
        try:
            ends: list[asyncio.Future[Any]] = [opening, self._given_up]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise FleetError("its shards could not be started; the server's log tells why")
            opened = opening.result()
            opened.service.adapters.recall(self._known_adapters, self._removed_adapters)
            self._opened = opened
        except Exception as error:
            is_known = isinstance(error, FleetError | TokenizerError | LimitError | InvalidArgument | OSError)
            self._fail(str(error) if is_known else f"the server has failed: {error!r}", None if is_known else error)
            raise NotLoaded(f"{self.name} could not be loaded: {self.reason}") from error
        finally:
            self._given_up = None
            if self._opened is None:
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
        self.state, self.used_at = State.READY, time.monotonic()
        log.info("%s is loaded, after %.1f s: %s", self.name, time.monotonic() - began_at,
                 _described(self._opened.service))

    async def unload(self) -> None:
        """Unloads the model once the requests that use it have ended; no others may begin to. When it returns, the
        shards have left."""
        assert self._opened is not None
        self.state = State.UNLOADING
        self._unloaded.clear()
        await self._unused.wait()
        opened, self._opened = self._opened, None
        self._known_adapters = [*opened.service.adapters]
        self._removed_adapters = opened.service.adapters.removed
        await opened.close()
        self._left.clear()
        self._orders.unload(self.name)
        if self.config.notices_fd >= 0:  # the next load would find the shards that leave
            await self._left.wait()
        self.state = State.UNLOADED
        self._unloaded.set()
        log.info("%s is unloaded", self.name)

    async def settled(self) -> None:
        """Waits while the model is being unloaded."""
        await self._unloaded.wait()

    async def close(self) -> None:
        """Lets go of the model's parts, when the router ends."""
        if self._opened is not None:
            await self._opened.close()

    def _count(self, facts: Facts, limits: Limits) -> Metrics:
        if self.metrics is None:
            self.metrics = self._make_metrics(facts, limits)
        return self.metrics

    def _note_end(self, engine: "asyncio.Task[None]") -> None:
        if not engine.cancelled() and (error := engine.exception()):
            log.critical("the engine of %s failed", self.name, exc_info=error)
            if self._opened is not None:
                self._opened.service.engine.give_up()
            self.on_loss(self)

    def _fail(self, reason: str, fault: Exception | None) -> None:
        self._orders.unload(self.name)
        self.state, self.reason, self._failed_at = State.FAILED, reason, time.monotonic()
        log.error("%s could not be loaded: %s", self.name, reason, exc_info=fault)

    def _take(self, notice: Notice) -> None:
        if notice is Notice.LEFT:
            self._left.set()
        elif notice is Notice.LOADING:
            if self._opened is not None:
                self._opened.service.engine.keep_waiting()
        elif self._opened is not None:
            log.error("the shards of %s will not be started again: all its requests fail", self.name)
            self._opened.service.engine.give_up()
            self.on_loss(self)
        elif self._given_up is not None and not self._given_up.done():
            self._given_up.set_result(None)


def _described(service: Service) -> str:
    facts, limits = service.facts, service.limits
    return (f"{facts.dtype} on {facts.world_size} shard{'s' * (facts.world_size > 1)}, at most "
            f"{limits.max_total_tokens} tokens a request; the router takes up to "
            f"{ceiling_of_model(limits, facts.num_blocks)} MiB more for it")
