"""A router that can't be kept running: a real supervisor, small programs, and a group without shards."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from penstock.launcher import hub, routers
from penstock.launcher.group import GroupKeeper, Loss
from penstock.launcher.launch import launch
from penstock.launcher.processes import Cause, Program
from penstock.launcher.routers import OwnRouters
from penstock.launcher.served_models import ServedModels
from penstock.launcher.supervisor import Supervisor
from penstock.router.notices import NoticePipe
from penstock.system.arguments import InvalidArgument
from tests.launcher.conftest import Parse

DIES = (sys.executable, "-I", "-S", "-c", "raise SystemExit(3)")
AGAIN = "the router ended with exit code 3, starting it again"


@pytest.fixture(autouse=True)
async def no_handlers() -> AsyncIterator[None]:
    yield
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)


async def supervise(
    router: Sequence[str], keep: Callable[[asyncio.Future[None]], Awaitable[Loss | None]], *others: Sequence[str]
) -> int:
    """Runs a supervisor until it ends, and returns the exit code; `keep` stands for the group's life."""
    with closing(NoticePipe()) as notices, socket.socket() as listener:
        async with asyncio.timeout(20):
            programs = [Program("the router", each) for each in (router, *others)]
            own = OwnRouters(programs, listener, [notices], drain_timeout=1, startup_timeout=20, silence_limit=20,
                             can_reload=False)
            return await Supervisor(Mock(spec=GroupKeeper, keep=keep), own).run()


async def run_well(end: asyncio.Future[None]) -> None:
    await asyncio.wait([end])


async def test_router_that_cannot_be_started_is_a_useless_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(routers, "BACKOFF_SECONDS", (0.0,) * 4)
    assert await supervise(["/no/such/program"], run_well) == 1
    reason = "the router could not be started: No such file or directory: /no/such/program"
    assert caplog.messages == [*[f"{reason}, starting it again"] * 4, f"{reason}, so all processes end"]


async def test_no_router_is_started_for_a_group_that_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(routers, "BACKOFF_SECONDS", (0.3,) * 4)
    waits = asyncio.Event()

    def see(record: logging.LogRecord) -> bool:
        if record.getMessage() == AGAIN:
            waits.set()
        return True

    async def give_up(end: asyncio.Future[None]) -> Loss:
        await waits.wait()
        return Loss([Cause("shard 0", "is lost")], has_stepped=False, is_refusal=False, is_from_outside=False)

    caplog.handler.addFilter(see)
    assert await supervise(DIES, give_up) == 1
    assert caplog.messages == [AGAIN, "shard 0 is lost, so all processes end"]


async def test_each_process_of_a_router_has_the_time_to_tell_that_a_group_is_given_up(tmp_path: Path) -> None:
    """Though another one ends before it."""
    def router(name: str, seconds: float) -> list[str]:
        begun, told = tmp_path / f"{name} begun", tmp_path / f"{name} told"
        return [sys.executable, "-I", "-S", "-c", f"import time; open({str(begun)!r}, 'w').close(); "
                f"time.sleep({seconds}); open({str(told)!r}, 'w').close()"]

    def names(word: str) -> set[str]:
        return {each.name for each in tmp_path.glob(f"* {word}")}

    async def give_up(end: asyncio.Future[None]) -> Loss:
        while len(names("begun")) < 2:
            await asyncio.sleep(0.01)
        return Loss([Cause("shard 0", "is lost")], has_stepped=False, is_refusal=False, is_from_outside=False)

    assert await supervise(router("quick", 0.1), give_up, router("slow", 0.4)) == 1
    assert names("told") == {"quick told", "slow told"}


def test_sighup_is_ignored_while_the_model_is_sought(
    parse: Parse, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("key\n")
    found = []

    def find(*arguments: object, **options: object) -> None:
        found.append(signal.getsignal(signal.SIGHUP))
        raise InvalidArgument("there is no such model")

    monkeypatch.setattr(hub, "find", find)
    before = signal.getsignal(signal.SIGHUP)
    try:
        with pytest.raises(InvalidArgument, match="no such model"):
            launch(ServedModels(parse("--api-key-file", str(keys), "--hostname", "127.0.0.1", "--port", "0")))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert found == [signal.SIG_IGN]
