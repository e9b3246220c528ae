"""The rest of a shard whose model is not used for now: its weights stay in memory, and it listens to its launcher."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.system.heap import freeze_heap

log = logging.getLogger(__name__)

REST, WAKE = signal.SIGUSR1, signal.SIGUSR2
FIRST_TO_LEAVE = "1000"
"""Tells the system to end the process before any other, if memory runs out."""
SCORE = Path("/proc/self/oom_score_adj")


def on_signals(found: "asyncio.Future[bool]", other: signal.Signals | None) -> None:
    """Has SIGTERM and SIGINT set the result of a future to False, and the other signal, if there is one, to True."""
    def take(is_other: bool) -> None:
        if not found.done():
            found.set_result(is_other)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, take, False)
    if other is not None:
        loop.add_signal_handler(other, take, True)


def rest(tell_resting: Callable[[], None]) -> bool:
    """Waits until the shard is to serve again, or to end; returns whether it is to serve. What it needs meanwhile is
    the system's to take if memory runs out."""
    gc.unfreeze()
    gc.collect()
    freeze_heap()
    before = SCORE.read_text() if SCORE.exists() else ""
    with suppress(OSError):
        SCORE.write_text(FIRST_TO_LEAVE)
    is_woken = asyncio.run(_woken(tell_resting))
    with suppress(OSError):
        SCORE.write_text(before)
    return is_woken


async def _woken(tell_resting: Callable[[], None]) -> bool:
    woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    on_signals(woken, WAKE)
    tell_resting()
    log.info("resting until the model is loaded again")
    return await woken
