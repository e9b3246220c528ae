"""Which deaths a group gets over: small programs that die in several ways, none of which ever listens."""

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.launcher import group
from penstock.launcher.group import GroupKeeper, Loss
from penstock.launcher.processes import Program
from penstock.launcher.shard_memory import ShardMemory, shard_memories
from penstock.system.arguments import InvalidArgument
from penstock.system.wire_tls import WireTls
from tests.certificates import authority

KILLED = "os.kill(os.getpid(), 9)"
REFUSED = "sys.exit('no such checkpoint')"
WAITS = "time.sleep(60)"
READY = "os.write(int(sys.argv[2]), b'!')"
PEER_LOST = "time.sleep(0.1); sys.exit('Connection closed by peer')"


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "BACKOFF_SECONDS", (0.0,) * 4)


async def keep(
    directory: Path, *lives: Sequence[str], memories: Sequence[ShardMemory] = (), begin: Callable[[], None] = int,
    startup_timeout: float = 20,
) -> tuple[Loss | None, int]:
    """The loss that ended the group, and the number of its lives; `lives` are the code of its shards, the last for
    all that follow. `begin` is called before each."""
    num_lives = 0

    def programs() -> list[Program]:
        nonlocal num_lives
        begin()
        num_lives += 1
        return [Program(f"shard {rank}", [sys.executable, "-I", "-S", "-c", f"import os, sys, time; {code}"],
                        gives_signs=True)
                for rank, code in enumerate(lives[min(num_lives, len(lives)) - 1])]

    targets = [f"unix:{directory}/shard-{rank}" for rank in range(len(lives[0]))]
    end = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(20):
        return await GroupKeeper(programs, targets, 1, startup_timeout, memories).keep(end), num_lives


async def test_refusal_at_the_first_start_is_final(tmp_path):
    loss, num_lives = await keep(tmp_path, [WAITS, REFUSED])
    assert num_lives == 1
    [cause] = loss.causes
    assert (cause.name, cause.what, cause.last_lines) == ("shard 1", "ended with exit code 1", ["no such checkpoint"])


async def test_refusal_at_a_later_start_may_be_mended(tmp_path):
    """A file system may be away for a while."""
    loss, num_lives = await keep(tmp_path, [WAITS, KILLED], [REFUSED, WAITS])
    assert num_lives == 5
    assert str(loss) == "shard 0 ended with exit code 1"


async def test_shard_that_gives_up_since_another_was_killed_refuses_nothing(tmp_path):
    _, num_lives = await keep(tmp_path, [KILLED, PEER_LOST])
    assert num_lives == 5


async def test_ready_shard_that_dies_before_it_could_answer_anyone_is_a_new_beginning(tmp_path):
    """As when one request after the other kills the group in the first step."""
    _, num_lives = await keep(tmp_path, *[[f"{READY}; {KILLED}"]] * 7, [REFUSED])
    assert num_lives == 7 + 5


async def test_ready_shard_that_fails_refuses_nothing(tmp_path):
    _, num_lives = await keep(tmp_path, [f"{READY}; {REFUSED}"], [REFUSED])
    assert num_lives == 1 + 5


async def test_group_is_ready_once_all_are(tmp_path):
    _, num_lives = await keep(tmp_path, [f"{READY}; {WAITS}", KILLED])
    assert num_lives == 5


async def test_program_that_cannot_be_started(tmp_path):
    end = asyncio.get_running_loop().create_future()
    loss = await GroupKeeper(lambda: [Program("shard 0", ["/no/such/program"])], ["unix:/no"], 1, 20).keep(end)
    assert str(loss) == "the group could not be started: No such file or directory: /no/such/program"
    assert loss.is_refusal


async def test_certificates_that_are_away_do_not_end_the_launcher(tmp_path, caplog):
    """As they are for a moment when they are renewed; a later start finds them, the first one's successor, too."""
    issued = authority(tmp_path / "ca").issue("shard")
    tls = WireTls(issued.ca, issued.cert, tmp_path / "shard.key")
    end = asyncio.get_running_loop().create_future()
    num_starts = 0

    def programs() -> list[Program]:
        nonlocal num_starts
        num_starts += 1
        if num_starts == 3:
            tls.key.write_bytes(issued.key.read_bytes())
            end.set_result(None)
        return [Program("shard 0", [sys.executable, "-I", "-S", "-c", f"import time; {WAITS}"], gives_signs=True)]

    assert await GroupKeeper(programs, ["127.0.0.1:1"], 1, 20, tls=tls).keep(end) is None
    assert num_starts == 3
    told = [record.getMessage() for record in caplog.records if record.name.startswith("penstock.")]
    assert told == [f"the group could not be started: shard 127.0.0.1:1: cannot read {tls.key}: No such file or "
                    "directory, starting all shards again"] * 2


@pytest.mark.parametrize(("error", "reason"), [
    (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "Resource temporarily unavailable"),
    (InvalidArgument("the folder is in use"), "the folder is in use"),
], ids=["no more processes", "folder in use"])
async def test_later_start_that_fails_may_be_mended(tmp_path, caplog, error, reason):
    """As where the system has no more processes for a while."""
    num_begun = 0

    def begin() -> None:
        nonlocal num_begun
        num_begun += 1
        if num_begun in (2, 3, 4):
            raise error

    _, num_lives = await keep(tmp_path, [KILLED], [f"{READY}; {KILLED}"], [REFUSED], begin=begin)
    assert num_lives == 2 + 5
    # asyncio may speak of loops that other tests have closed.
    told = [record.getMessage() for record in caplog.records if record.name.startswith("penstock.")]
    assert told[1:4] == [f"the group could not be started: {reason}, starting all shards again"] * 3


@pytest.mark.parametrize(("life", "is_kept"), [
    ([f"time.sleep(0.5); {KILLED}", WAITS], True),
    ([f"time.sleep(0.5); {KILLED}", "os.kill(os.getpid(), 11)"], False),
    ([f"time.sleep(0.5); {KILLED}", REFUSED], False),
], ids=["killed", "SIGSEGV", "an exception"])
async def test_memory_outlives_shards_that_were_killed_but_not_those_that_broke_down(tmp_path, life, is_kept):
    sizes = []
    with shard_memories(1) as [memory]:
        os.ftruncate(memory.fd, 10_000)
        await keep(tmp_path, [f"{READY}; {code}" for code in life], [REFUSED] * len(life), memories=[memory],
                   begin=lambda: sizes.append(os.fstat(memory.fd).st_size))
    assert sizes[:3] == [10_000, 10_000 if is_kept else 4096, 4096]


async def test_memory_does_not_outlive_shards_that_were_killed_while_they_loaded(tmp_path):
    """It may be what they were killed for."""
    with shard_memories(1) as [memory]:
        os.ftruncate(memory.fd, 10_000)
        await keep(tmp_path, [KILLED], memories=[memory])
        assert os.fstat(memory.fd).st_size == 4096
