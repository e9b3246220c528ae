"""A child process whose stderr is passed on, and remembered for the day it dies."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

BACKOFF_SECONDS = (0.0, 0.1, 0.5, 2.0)
"""Waits before new starts after deaths in a row: the first is at once, and there is none after one more death."""
REMEMBERED_BYTES = 8192
NUM_LAST_LINES = 20
RELAY_SECONDS = 1.0
"""How long to read on after a child's end: a grandchild that holds its stderr open must not keep us waiting."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run; `name` is what messages call the process.

    One that `tells_ready` takes `--ready-fd FD`: a pipe, for a byte once it can do its work. `environment`: ours, if it
    is None.
    """

    name: str
    argv: Sequence[str]
    tells_ready: bool = False
    environment: Mapping[str, str] | None = field(default=None, repr=False)


class Process:
    """One run of a program, made by `started`."""

    def __init__(self, program: Program, process: asyncio.subprocess.Process, errors: int, ready: int) -> None:
        self.name = program.name
        self.is_ready = False
        """It has told that it can do its work; once `ended` is done, whether it ever did."""
        self._process = process
        self._errors = errors
        self._ready = ready
        self._memory = b""
        loop = asyncio.get_running_loop()
        self._no_more_errors: asyncio.Future[None] = loop.create_future()
        loop.add_reader(errors, self._relay)
        os.set_blocking(ready, False)
        loop.add_reader(ready, self._hear)
        self.ended = asyncio.create_task(self._end())
        """Done when the process has ended and its last words are read."""

    @property
    def status(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def ending(self) -> str:
        """How it ended, for a message."""
        status = self._process.returncode
        if status is None:
            return "still runs"
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"

    @property
    def last_lines(self) -> list[str]:
        """The last non-empty lines of its stderr; of a progress bar, what was last to be seen."""
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in self._memory.decode(errors="replace").split("\n")]
        return [line for line in lines if line.strip()][-NUM_LAST_LINES:]

    def terminate(self) -> None:
        """Ask it to end."""
        if self.status is None:
            self._process.terminate()

    def kill(self) -> None:
        """End it, and whatever it has started, even if it is dead itself."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _end(self) -> None:
        await self._process.wait()
        await asyncio.wait([self._no_more_errors], timeout=RELAY_SECONDS)
        self._hear()
        for pipe in (self._errors, self._ready):
            asyncio.get_running_loop().remove_reader(pipe)
            os.close(pipe)

    def _hear(self) -> None:
        """One byte says it; an end without one, that it never will."""
        with suppress(BlockingIOError):
            self.is_ready |= bool(os.read(self._ready, 1))
            asyncio.get_running_loop().remove_reader(self._ready)

    def _relay(self) -> None:
        """Bytes, not lines: a progress bar returns the carriage for hours before it ends its line."""
        chunk = os.read(self._errors, REMEMBERED_BYTES)
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._errors)
            self._no_more_errors.set_result(None)
        self._memory = (self._memory + chunk)[-REMEMBERED_BYTES:]
        with suppress(OSError):
            sys.stderr.buffer.write(chunk)
            sys.stderr.buffer.flush()


@asynccontextmanager
async def started(program: Program) -> AsyncIterator[Process]:
    """A run of the program, over when the block is left.

    It has a session of its own, so that Ctrl-C in a terminal reaches the launcher alone, which ends the others in
    order.
    """
    process = await _start(program)
    try:
        yield process
    finally:
        process.kill()
        await asyncio.wait([process.ended])


async def _start(program: Program) -> Process:
    """The pipes are ours: before Python 3.12, asyncio's own keep `wait` waiting for grandchildren that hold them."""
    with _pipe() as (errors, errors_end), _pipe() as (ready, ready_end):
        more = ["--ready-fd", str(ready_end)] if program.tells_ready else []
        return Process(program, await asyncio.create_subprocess_exec(
            *program.argv, *more, stdin=asyncio.subprocess.DEVNULL, stderr=errors_end,
            pass_fds=[ready_end] if more else [], start_new_session=True,
            env=program.environment), errors, ready)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """The end to read from, and the child's: the block starts the child, whose end is closed here afterwards."""
    read_end, write_end = os.pipe()
    try:
        yield read_end, write_end
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
