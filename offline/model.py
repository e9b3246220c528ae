"""A model that is open, whose thread and shards end with the object that has it, or with the process."""

import asyncio
import os
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

from penstock.offline.arguments import QUIET, launcher_config
from penstock.offline.event_loop import CLOSED, EventLoop
from penstock.offline.failures import as_error
from penstock.offline.session import Session
from penstock.router import logs
from penstock.router.generation.seeds import derived_seed
from penstock.router.generation.service import Service


class Model:
    """Opens a model by the arguments of an `LLM`, in a thread with an event loop. `owner` is the object that has it:
    when that is gone, the model is closed."""

    def __init__(self, owner: object, arguments: Mapping[str, Any]) -> None:
        self._seed: int | None = arguments.get("seed")
        self._numbers, self._places = count(), count(1)
        self._pid = os.getpid()
        self.running: dict[str, Future[None]] = {}
        """The requests whose outputs stream, by their ids."""
        config = launcher_config(arguments)
        if config.log_level != QUIET:
            logs.follow("penstock", config.log_level)
        if config.launcher_log_level != QUIET:
            logs.follow("penstock.launcher", config.launcher_log_level)
        self.session = Session(config, arguments.get("tokenizer"))
        self.loop = EventLoop("penstock")
        self.loop.submit(self.session.live())
        self.close = weakref.finalize(owner, _close, self.loop, self._pid)
        """Ends the shards, at once, and the thread; done once, however often it is called."""

    async def opened(self) -> Service:
        """Waits as `wait` does, in any event loop, and returns the service."""
        try:
            await asyncio.shield(asyncio.wrap_future(self.session.opened))
        except Exception as error:
            self.close()
            raise as_error(error) from error
        return self.service

    def wait(self) -> None:
        """Waits until it can answer. Raises ValueError for arguments with which it can't, RuntimeError if it fails for
        another reason; then it is closed."""
        try:
            self.session.opened.result()
        except Exception as error:
            self.close()
            raise as_error(error) from error
        except BaseException:
            self.close()
            raise

    @property
    def service(self) -> Service:
        """The service that answers. Raises RuntimeError as `check` does."""
        self.check()
        try:
            return self.session.opened.result()
        except Exception as error:
            raise as_error(error) from error

    @property
    def folder(self) -> Path:
        """Where the model's files are. Raises RuntimeError as `check` does."""
        self.check()
        return self.session.model_dir

    def check(self) -> None:
        """Raises RuntimeError if the model is not loaded yet, or was closed, or if the shards can't be started any
        more."""
        if self._pid != os.getpid():
            raise RuntimeError(f"the LLM belongs to process {self._pid}, of which this one is a fork: make one in each "
                               "process, or ask from threads")
        if not self.close.alive:
            raise RuntimeError(CLOSED)
        if not self.session.opened.done():
            raise RuntimeError("the model is not loaded yet: enter the `async with` first")
        if self.session.failure is not None:
            raise as_error(self.session.failure)

    def next_id(self) -> str:
        """Returns the id of the next request."""
        return str(next(self._numbers))

    def next_seed(self) -> int | None:
        """Returns the seed of the next prompt whose parameters have none: it follows from the model's and from how many
        came before. None stands for chance."""
        place = next(self._places)
        return None if self._seed is None else derived_seed(self._seed, place)


def _close(loop: EventLoop, pid: int) -> None:
    if pid == os.getpid():  # and not in a fork, which has neither the thread nor the shards
        loop.close()
