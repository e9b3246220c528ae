"""A child's stderr: passed on as it comes, and remembered."""

import asyncio
import ctypes
import json
import os
import re
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from io import StringIO

import psutil
import pytest

from penstock.launcher.processes import NUM_LAST_LINES, Program, started
from tests.launcher.stand_in_processes import wait_until
from tests.processes import runs

TIMEOUT = 20
PR_SET_CHILD_SUBREAPER = 36


def python(code: str) -> Program:
    return Program("child", [sys.executable, "-I", "-S", "-c", f"import sys, os, time; {code}"])


async def test_bytes_are_relayed_before_the_line_ends(capsysbinary):
    waits = python(r"os.write(2, b'\r 50%'); time.sleep(60)")
    async with started(waits) as child, asyncio.timeout(TIMEOUT):
        seen = b""
        while seen != b"\r 50%":
            await asyncio.sleep(0.01)
            seen += capsysbinary.readouterr().err
        assert child.status is None
    assert child.ending == "was ended by SIGKILL"


async def test_errors_are_relayed_to_a_stderr_that_takes_texts_alone(monkeypatch):
    """As that of a notebook."""
    monkeypatch.setattr(sys, "stderr", shown := StringIO())
    async with started(python("print('one line', file=sys.stderr)")) as child:
        await child.ended
    assert shown.getvalue() == "one line\n"


async def test_no_line_is_cut_by_another_childs(capsysbinary):
    """Several write more at once than is read at once."""
    code = r"[os.write(2, b'%d' % {0} * 400 + b'\n') for _ in range(300)]; os.write(2, b'the end of {0}')"
    async with AsyncExitStack() as stack:
        children = [await stack.enter_async_context(started(python(code.format(number)))) for number in range(3)]
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(*(child.ended for child in children))
    lines = re.sub(rb"the end of \d", b"", capsysbinary.readouterr().err).splitlines()
    assert sorted(set(lines)) == [b"0" * 400, b"1" * 400, b"2" * 400]
    assert len(lines) == 900


async def test_last_lines_of_a_progress_bar_and_a_traceback():
    async with started(python(r"os.write(2, b'\r10%\r20%\rdone\n\nError: x\r\n'); sys.exit(3)")) as child:
        await asyncio.wait([child.ended], timeout=TIMEOUT)
        assert child.last_lines == ["done", "Error: x"]
        assert child.ending == "ended with exit code 3"


async def test_memory_is_bounded():
    async with started(python("[print('line', n, file=sys.stderr) for n in range(100_000)]")) as child:
        await asyncio.wait([child.ended], timeout=TIMEOUT)
        assert child.last_lines == [f"line {n}" for n in range(100_000 - NUM_LAST_LINES, 100_000)]


async def test_grandchild_that_holds_stderr_neither_delays_the_end_nor_survives_it():
    code = "import subprocess; p = subprocess.Popen(['sleep', '60']); os.write(2, b'%d' % p.pid)"
    async with started(python(code)) as child:
        done, _ = await asyncio.wait([child.ended], timeout=TIMEOUT)
        assert done
        grandchild = int(child.last_lines[0])
        assert runs(grandchild)
    wait_until(lambda: not runs(grandchild), lambda: "the grandchild's end")


@pytest.fixture
def inherits_orphans():
    """Makes this process the parent of its grandchildren when their parents die, as process 1 of a container is."""
    prctl = ctypes.CDLL(None).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


async def test_grandchildren_are_no_zombies_afterwards(inherits_orphans):
    code = ("import subprocess; s = [subprocess.Popen(['sleep', '60'], stderr=-3) for _ in range(3)]; "
            "os.write(2, str([p.pid for p in s]).encode()); os.kill(os.getpid(), 9)")
    async with started(python(code)) as child:
        await asyncio.wait([child.ended], timeout=TIMEOUT)
        grandchildren = json.loads(child.last_lines[0])
        assert [psutil.Process(pid).ppid() for pid in grandchildren] == [os.getpid()] * 3
    assert child.ending == "was ended by SIGKILL"
    assert not any(map(psutil.pid_exists, grandchildren))


@pytest.mark.parametrize(("signs", "is_ready"), [("..!", True), ("!", True), ("..", False), ("", False)])
async def test_signs_of_a_child_are_heard_although_it_died_at_once(signs, is_ready):
    code = f"assert sys.argv[1] == '--signs-fd'; os.write(int(sys.argv[2]), b'{signs}'); os.kill(os.getpid(), 9)"
    async with started(replace(python(code), gives_signs=True)) as child:
        await asyncio.wait([child.ended], timeout=TIMEOUT)
        assert child.ending == "was ended by SIGKILL"
        assert (child.num_signs, child.is_ready) == (len(signs), is_ready)


async def test_signs_of_a_child_that_lives_are_heard():
    program = python("os.write(int(sys.argv[2]), b'!'); time.sleep(60)")
    async with started(replace(program, gives_signs=True)) as child, asyncio.timeout(TIMEOUT):
        while not child.is_ready:
            await asyncio.sleep(0.01)
        assert child.status is None


async def test_program_that_is_not_there():
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        async with started(Program("nothing", ["/no/such/program"])):
            pass
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)


async def test_child_has_a_session_of_its_own(capfd):
    async with started(python("print(os.getsid(0) == os.getpid())")) as child:
        await asyncio.wait([child.ended], timeout=TIMEOUT)
    assert capfd.readouterr().out == "True\n"
