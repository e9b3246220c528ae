"""Shards that rest: those of models that were unloaded, which keep their weights in memory for the next load."""

import asyncio
import logging
import math
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from penstock.launcher.processes import Process
from penstock.system.memory import available_memory

log = logging.getLogger(__name__)

REST_SECONDS = 10.0
"""How long shards may take to give up their other memory."""
LOOK_SECONDS = 1.0
PLENTY = 2
"""How many times as much memory as a model takes must be available for its load, that all others may rest on."""
LEAST_AVAILABLE = 512 << 20
"""Bytes: where the machine has fewer left, shards that rest end."""

Files = Sequence[tuple[Path, int, int, int]]
"""Files with what the system says of each, by which it is known to be the same."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The shards of a group that rest, and the bytes that they hold."""

    shards: Sequence[Process]
    num_bytes: float


class RestingShards:
    """The groups whose shards rest, each by its model. The least recently used ones end where all of them hold more
    than `max_bytes`, and where the machine runs out of memory."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._groups: dict[str, _Group] = {}
        self._is_closed = False

    async def put(self, model: str, shards: Sequence[Process], stack: AsyncExitStack) -> bool:
        """Has shards rest, which `stack` would end otherwise; returns whether they do."""
        if self._is_closed or not all(shard.is_ready for shard in shards):
            return False
        for shard in shards:
            shard.send_signal(signal.SIGUSR1)
        resting = [asyncio.ensure_future(shard.resting.wait()) for shard in shards]
        try:
            async with asyncio.timeout(REST_SECONDS):
                ends = [asyncio.wait([rest, shard.ended], return_when=asyncio.FIRST_COMPLETED)
                        for rest, shard in zip(resting, shards, strict=True)]
                await asyncio.gather(*ends)
        except TimeoutError:
            log.warning("the shards of %s can't rest: they still hold memory after %g s", model, REST_SECONDS)
        finally:
            for rest in resting:
                rest.cancel()
        held = sum(_held_bytes(shard.pid) for shard in shards)
        if self._is_closed or held > self._max_bytes or not all(map(_is_resting, shards)):
            return False
        stack.pop_all()
        self._groups[model] = _Group(shards, held)
        log.info("the weights of %s stay in memory: %.0f MB", model, held / 1e6)
        while sum(group.num_bytes for group in self._groups.values()) > self._max_bytes:
            await self._end_first()
        return True

    async def take(self, model: str, stack: AsyncExitStack) -> Sequence[Process]:
        """Wakes the shards of a model, which `stack` ends from now on; returns none if none rest."""
        if not all(map(_is_resting, self._shards(model))):
            await self.drop(model)
        shards = self._shards(model)
        self._groups.pop(model, None)
        for shard in shards:
            stack.push_async_callback(shard.close)
            shard.resting.clear()
            shard.send_signal(signal.SIGUSR2)
        return shards

    async def drop(self, model: str) -> None:
        """Ends the shards of a model, if they rest."""
        if (group := self._groups.pop(model, None)) is not None:
            await asyncio.gather(*(shard.close() for shard in group.shards))

    async def make_room(self, num_bytes: int) -> None:
        """Ends the shards of the least recently used models until so much memory is available."""
        while self._groups and available_memory() < num_bytes:
            await self._end_first()

    async def watch(self) -> None:
        """Ends shards whose memory is needed, and groups that have lost some, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for model in [*self._groups]:
                if not all(map(_is_resting, self._shards(model))):
                    await self.drop(model)
            if self._groups and available_memory() < LEAST_AVAILABLE:
                await self._end_first()

    async def close(self) -> None:
        """Ends all shards that rest, and lets no others."""
        self._is_closed = True
        while self._groups:
            await self._end_first()

    def _shards(self, model: str) -> Sequence[Process]:
        return self._groups[model].shards if model in self._groups else ()

    async def _end_first(self) -> None:
        model = next(iter(self._groups))
        log.info("the weights of %s leave the memory", model)
        await self.drop(model)


class Rest:
    """The rest of the shards of one model, which takes `num_bytes` when it is loaded from the files at `paths`. Shards
    whose files were changed meanwhile are of no use."""

    def __init__(self, all_resting: RestingShards, model: str, num_bytes: int, paths: Sequence[Path]) -> None:
        self._all = all_resting
        self._model = model
        self._num_bytes = num_bytes
        self._paths = paths
        self._files: Files = ()

    async def begin(self, shards: Sequence[Process], stack: AsyncExitStack) -> bool:
        """Has the shards rest, which `stack` would end otherwise; returns whether they do."""
        return await self._all.put(self._model, shards, stack)

    async def end(self, stack: AsyncExitStack) -> Sequence[Process]:
        """Wakes the shards, which `stack` ends from now on; returns none if they are to be started. Either way others
        that rest make room for them."""
        files = _files(self._paths)
        shards: Sequence[Process] = ()
        if files == self._files:
            shards = await self._all.take(self._model, stack)
        else:
            await self._all.drop(self._model)
        self._files = files
        await self._all.make_room(PLENTY * self._num_bytes)
        return shards


def _is_resting(shard: Process) -> bool:
    return shard.status is None and shard.resting.is_set()


def _held_bytes(pid: int) -> float:
    """Returns the memory that a process has alone; infinity, where the system does not tell it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024
    except (OSError, ValueError):
        return math.inf


def _files(paths: Sequence[Path]) -> Files:
    """Returns the files at these paths, and in the directories there."""
    found = []
    for path in paths:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            try:
                stat = file.stat()
            except OSError:
                continue
            found.append((file, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return found
