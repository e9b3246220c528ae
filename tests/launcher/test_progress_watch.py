"""Processes that are silent: when that is found, by their signs alone."""

import asyncio
from functools import partial
from unittest.mock import Mock

import pytest

from penstock.launcher import progress_watch
from penstock.launcher.group import GroupKeeper
from penstock.launcher.processes import Process
from tests.eventually import until

LIMIT, START_LIMIT = 0.05, 1000.0


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_watch, "POLL_SECONDS", 0.01)


def process_that_is_silent() -> Mock:
    return Mock(spec=Process, num_signs=0, is_ready=False)


async def test_a_process_that_starts_may_be_silent_for_longer() -> None:
    process = process_that_is_silent()
    async with progress_watch.followed(process, START_LIMIT, LIMIT) as found:
        await until(lambda: found.seconds > 4 * LIMIT)
        assert not found.finding
        process.is_ready, process.num_signs = True, 1
        await found.is_over
        assert found.finding.startswith("has given no sign of life for 0.")


async def test_while_one_shard_reads_those_that_wait_for_it_are_not_silent() -> None:
    group, loads = GroupKeeper(lambda: [], [], step_timeout=1, startup_timeout=1), []
    waits, reads = process_that_is_silent(), process_that_is_silent()
    on_sign = partial(group._note_progress, loads)
    async with (progress_watch.followed(waits, 10 * LIMIT, on_sign=on_sign) as waiting,
                progress_watch.followed(reads, 10 * LIMIT, on_sign=on_sign) as reading):
        loads += [waiting, reading]
        for _ in range(100):
            reads.num_signs += 1
            await asyncio.sleep(0.01)
        assert not waiting.is_over.done()
        await asyncio.wait([waiting.is_over, reading.is_over])
