"""`penstock drain` and `penstock roll` against shards that answer over real gRPC, without a model."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from penstock.launcher import known_groups, roll
from penstock.launcher.cli import main
from penstock.launcher.known_groups import KnownGroup
from penstock.protos import services, shard_pb2
from penstock.system.arguments import InvalidArgument


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for addresses at which nobody listens."""
    monkeypatch.setattr(known_groups, "ASK_SECONDS", 1.0)


class Shard:
    """The shard of a rank, which computes for a while after it was told to drain, and then rests."""

    def __init__(self, group: str, rank: int = 0, busy_seconds: float = 0.0) -> None:
        self.group = group
        self.rank = rank
        self.busy_seconds = busy_seconds
        self.drains: list[bool] = []
        self._since = time.monotonic()
        self.address = ""
        """Where it is served."""

    async def Describe(self, request: Any, context: Any) -> shard_pb2.Facts:
        return shard_pb2.Facts(group=self.group, rank=self.rank, world_size=1)

    async def Health(self, request: Any, context: Any) -> shard_pb2.HealthReply:
        is_busy = time.monotonic() - self._since < self.busy_seconds
        return shard_pb2.HealthReply(
            steps_begun=2 if is_busy else 1, steps_ended=1, ended_seconds_ago=9.0, has_stream=is_busy,
            is_draining=bool(self.drains) and self.drains[-1])

    async def Drain(self, request: shard_pb2.DrainRequest, context: Any) -> shard_pb2.DrainReply:
        self.drains.append(request.is_draining)
        self._since = time.monotonic()
        return shard_pb2.DrainReply()


@asynccontextmanager
async def serving(*shards: Shard) -> AsyncIterator[str]:
    """Serves the shards; yields a value of --groups."""
    servers = []
    for shard in shards:
        server = grpc.aio.server()
        services.serve(server, shard_pb2, shard)
        shard.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        servers.append(server)
    try:
        yield ",".join(shard.address for shard in shards)
    finally:
        for server in servers:
            await server.stop(None)


async def run(*arguments: str) -> tuple[int, str]:
    """Runs a command in a thread of its own; returns its exit code and what it said."""
    result = await asyncio.to_thread(CliRunner().invoke, main, list(arguments))
    return result.exit_code, result.output


async def test_a_group_drains_by_its_address_or_its_name() -> None:
    blue, green = Shard("blue", busy_seconds=0.5), Shard("green")
    async with serving(green, blue) as groups:
        began = time.monotonic()
        code, output = await run("drain", "blue", "--groups", groups)
        assert (code, output.startswith("blue is empty after")) == (0, True)
        assert time.monotonic() - began > 0.5
        assert await run("drain", blue.address, "--undo") == (0, f"{blue.address} takes sequences again\n")
        code, output = await run("drain", "red", "--groups", f"{groups},127.0.0.1:1")
        assert code == 1
        assert f"no group red answers; those that do: green ({green.address}), blue ({blue.address})" in output
        assert "\n  shard 127.0.0.1:1: " in output
    assert (blue.drains, green.drains) == ([True, False], [])


async def test_a_group_that_does_not_become_empty_goes_on_draining() -> None:
    blue = Shard("blue", busy_seconds=60)
    async with serving(blue):
        code, output = await run("drain", blue.address, "--timeout", "0.3")
    assert (code, blue.drains) == (1, [True])
    assert "still computes after 0.3 s, and goes on draining" in output


async def test_names_need_places_and_places_need_an_answer() -> None:
    assert (await run("drain", "blue"))[1].endswith("names are known with --groups alone\n")
    code, output = await run("drain", "127.0.0.1:1")
    assert (code, "shard 127.0.0.1:1: UNAVAILABLE" in output) == (1, True)
    code, output = await run("drain", "10.1.1.1:1")
    assert (code, "10.1.1.1:1 is not reached in the clear" in output) == (1, True)


def restart(shards: Sequence[Shard], folder: Path) -> tuple[str, asyncio.Task[None]]:
    """Returns a command that asks for a group by a file, and what then has it drain no more."""
    async def watch() -> None:
        while True:
            for shard in shards:
                if (file := folder / shard.group).exists():
                    file.unlink()
                    shard.drains.append(False)
            await asyncio.sleep(0.01)

    return f"echo {{group}} {{host}} >> {folder}/log; touch {folder}/{{group}}", asyncio.create_task(watch())


async def test_groups_are_started_anew_one_after_the_other(tmp_path: Path) -> None:
    shards = [Shard("blue", busy_seconds=0.2), Shard("blue", rank=1), Shard("two words")]
    command, watching = restart(shards, tmp_path)
    async with serving(*shards) as groups:
        code, output = await run("roll", "--groups", groups, "--restart", command, "--dry-run")
        assert (code, output.count("drain, then echo")) == (0, 2)
        assert not any(shard.drains for shard in shards)
        code, output = await run("roll", "--groups", groups, "--restart", command, "--timeout", "20")
    watching.cancel()
    assert code == 0, output
    assert [shard.drains for shard in shards] == [[True, False], [], [True, False]]
    assert (tmp_path / "log").read_text() == "blue 127.0.0.1\ntwo words 127.0.0.1\n"
    assert [line.partition(" after")[0].partition(" ")[2] for line in output.splitlines()] == [
        f"blue ({shards[0].address}): draining", f"blue ({shards[0].address}): empty",
        f"blue ({shards[0].address}): back", f"two words ({shards[2].address}): draining",
        f"two words ({shards[2].address}): empty", f"two words ({shards[2].address}): back"]


@pytest.mark.parametrize(("command", "complaint"), [
    ("exit 3", "blue ({address}): the command ended with 3; the group goes on draining"),
    ("true", "blue ({address}) does not answer anew within 0.5 s after its restart")])
async def test_the_first_failure_is_the_last_step(command: str, complaint: str) -> None:
    blue, green = Shard("blue"), Shard("green")
    async with serving(blue, green) as groups:
        code, output = await run("roll", "--groups", groups, "--restart", command, "--timeout", "0.5")
    assert code == 1
    assert complaint.format(address=blue.address) in output
    assert (blue.drains, green.drains) == ([True], [])


@pytest.mark.slow
async def test_nothing_is_begun_that_could_not_end_well() -> None:
    blue, green = Shard("blue"), Shard("green")
    async with serving(blue, green) as groups:
        for given, complaint in (
            (f"{groups},127.0.0.1:1", "all groups must answer before the first one drains:\n  shard 127.0.0.1:1"),
            (blue.address, f"blue ({blue.address}) is the only group"), ("a:1", "a:1 is not reached in the clear")):
            code, output = await run("roll", "--groups", given, "--restart", "true")
            assert (code, complaint in output) == (1, True), output
        assert not blue.drains
        green.drains.append(True)
        code, output = await run("roll", "--groups", groups, "--restart", "true")
    assert (code, f"green ({green.address}) drains already" in output) == (1, True)
    assert blue.drains == []


async def test_a_name_that_is_taken_twice_names_no_group() -> None:
    """What is back would be the other one."""
    one, other = Shard("same"), Shard("same")
    async with serving(one, other) as groups:
        for arguments in (("roll", "--restart", "true"), ("drain", "same")):
            code, output = await run(*arguments, "--groups", groups)
            assert (code, f"{one.address} and {other.address} are all of group same" in output) == (1, True), output
    assert (one.drains, other.drains) == ([], [])


@pytest.mark.parametrize("restart", [[], ["roll", "--restart", "true"]])
async def test_ctrl_c_tells_of_the_group_that_goes_on_draining(restart: list[str]) -> None:
    blue = Shard("blue", busy_seconds=60)
    async with serving(blue, Shard("green")) as groups:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", *(restart or ["drain", "blue"]), "--groups", groups,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        async with asyncio.timeout(30):
            while not blue.drains:
                await asyncio.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, told = await process.communicate()
    assert process.returncode == 1
    assert f"goes on draining: penstock drain {blue.address} --undo" in told.decode()
    assert "Traceback" not in told.decode()


def test_what_a_command_can_be_told() -> None:
    group = KnownGroup("a group", ("10.0.0.1:4000", "10.0.0.2:4000"), False)
    assert roll.filled("x {group} {address} {host} {addresses} {hosts} ${HOME}", group) == (
        "x 'a group' 10.0.0.1:4000 10.0.0.1 10.0.0.1:4000 10.0.0.2:4000 10.0.0.1 10.0.0.2 ${HOME}")
    roll.check("x {host} ${port}")
    with pytest.raises(InvalidArgument, match=r"there is no \{port\}, but \{address\}"):
        roll.check("x {port}")
