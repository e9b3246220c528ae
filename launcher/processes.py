"""Child processes, whose stderr is passed on and whose last lines are kept for when they die."""

import asyncio
import logging
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from penstock.router.fleet.errors import FleetError
from penstock.system.arguments import InvalidArgument
from penstock.system.signs import Sign

log = logging.getLogger(__name__)

BACKOFF_SECONDS = (0.0, 0.1, 0.5, 2.0)
"""The waits before new starts after deaths in a row: the first start is at once, and after one more death than there
are waits, none follows."""
REMEMBERED_BYTES = 8192
NUM_LAST_LINES = 20
RELAY_SECONDS = 1.0
"""How long to read on after a child's end: a grandchild that holds its stderr open must not delay the launcher."""

REAP_SECONDS, REAP_POLLS = 2.0, 100
"""How long to wait for the end of what was killed, and how often to look: the system may hold it up."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command to run as a process, which messages call `name`.

    One that `gives_signs` takes `--signs-fd FD`, a pipe that it writes a `Sign` to whenever it has made progress, and
    once it can do its work. `environment` is the launcher's if it is None. The process inherits the file descriptors
    `fds`.
    """

    name: str
    argv: Sequence[str]
    gives_signs: bool = False
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    fds: Sequence[int] = ()


class Process:
    """One run of a program, which `started` makes."""

    def __init__(self, program: Program, process: asyncio.subprocess.Process, errors: int, signs: int) -> None:
        self.name = program.name
        self.num_signs = 0
        """How many signs it has given."""
        self.is_ready = False
        """Whether it has told that it can do its work; once `ended` is done, whether it ever told so."""
        self.resting = asyncio.Event()
        """Is set while it rests."""
        self._process = process
        self._errors = errors
        self._signs = signs
        self._memory = self._held = b""
        loop = asyncio.get_running_loop()
        self._no_more_errors: asyncio.Future[None] = loop.create_future()
        loop.add_reader(errors, self._relay)
        os.set_blocking(signs, False)
        loop.add_reader(signs, self._hear)
        self.ended = asyncio.create_task(self._end())
        """The task that is done when the process has ended and its last lines are read."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def ending(self) -> str:
        """Tells how the process ended, for a message."""
        status = self._process.returncode
        if status is None:
            return "still runs"
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"

    @property
    def last_lines(self) -> list[str]:
        """The last non-empty lines of its stderr; a progress bar counts as its last state."""
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in self._memory.decode(errors="replace").split("\n")]
        return [line for line in lines if line.strip()][-NUM_LAST_LINES:]

    def send_signal(self, number: signal.Signals) -> None:
        """Sends the process a signal, such as SIGTERM, which asks it to end."""
        if self.status is None:
            self._process.send_signal(number)

    def notify(self, number: signal.Signals) -> None:
        """Sends a signal that ends a process which does not know it: to this one, if it has given a sign."""
        if self.status is None:
            self._hear()
            if self.num_signs:
                self._process.send_signal(number)

    def kill(self) -> None:
        """Kills the process and whatever it has started, even if it is dead itself."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Kills the process and all that it has started, and waits for their end."""
        self.kill()
        await asyncio.wait([self.ended])
        await self._reap()

    async def _reap(self) -> None:
        """Takes note of the end of what the process had started, once that is killed and the process has ended itself.

        Where the launcher is process 1, as in a container, these have become its children, and would stay zombies.
        """
        for _ in range(REAP_POLLS):
            if _is_reaped(self._process.pid):
                return
            await asyncio.sleep(REAP_SECONDS / REAP_POLLS)

    async def _end(self) -> None:
        await self._process.wait()
        await asyncio.wait([self._no_more_errors], timeout=RELAY_SECONDS)
        self._hear()
        for pipe in (self._errors, self._signs):
            asyncio.get_running_loop().remove_reader(pipe)
            os.close(pipe)

    def _hear(self) -> None:
        """Reads the signs that the process has given, or the end of the pipe."""
        with suppress(BlockingIOError):
            signs = os.read(self._signs, REMEMBERED_BYTES)
            self.num_signs += len(signs)
            self.is_ready |= signs.count(Sign.READY) > 0
            if signs.count(Sign.RESTING):
                self.is_ready = False
                self.resting.set()
            if not signs:
                asyncio.get_running_loop().remove_reader(self._signs)

    def _relay(self) -> None:
        """Passes stderr on as bytes, not as lines, since a progress bar may take hours to end its line; but where more
        is there than is read at once, no line is cut, into which another process could write."""
        chunk = os.read(self._errors, REMEMBERED_BYTES)
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._errors)
            self._no_more_errors.set_result(None)
        self._memory = (self._memory + chunk)[-REMEMBERED_BYTES:]
        text = self._held + chunk
        end = (text.rfind(b"\n") + 1 if len(chunk) == REMEMBERED_BYTES else 0) or len(text)
        self._held = text[end:]
        _pass_on(text[:end])


def _pass_on(errors: bytes) -> None:
    """Writes the lines of a process's stderr on this one's, which in a notebook takes texts alone, and in a test may be
    closed."""
    with suppress(OSError, ValueError):
        if hasattr(sys.stderr, "buffer"):
            sys.stderr.buffer.write(errors)
            sys.stderr.buffer.flush()
        else:
            sys.stderr.write(errors.decode(errors="replace"))


def _is_reaped(group: int) -> bool:
    """Takes note of the ends of children in a group of processes; tells whether there is none left."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


@dataclass(frozen=True, slots=True)
class Cause:
    """Tells what ends other processes: what happened to the one called `name`, which is `process` if it ever ran."""

    name: str
    what: str
    process: Process | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.what}"

    @property
    def last_lines(self) -> list[str]:
        return self.process.last_lines if self.process else []

    @classmethod
    def of_failed_start(cls, name: str, error: OSError | InvalidArgument | FleetError) -> Self:
        """Makes the cause of what could not even be started."""
        if not isinstance(error, OSError):
            return cls(name, f"could not be started: {error.message if isinstance(error, InvalidArgument) else error}")
        where = f": {error.filename}" if error.filename is not None else ""
        return cls(name, f"could not be started: {error.strerror or error}{where}")


@asynccontextmanager
async def started(program: Program) -> AsyncIterator[Process]:
    """Runs the program while the block runs, and kills it at the end.

    The process has a session of its own, so that Ctrl-C in a terminal reaches the launcher alone, which ends the others
    in order.
    """
    process = await _start(program)
    try:
        yield process
    finally:
        await process.close()


async def started_in(stack: AsyncExitStack, program: Program) -> Process:
    """Runs the program until the stack ends, as `started` does."""
    process = await _start(program)
    stack.push_async_callback(process.close)
    return process


async def _start(program: Program) -> Process:
    """Starts the process with pipes made here: before Python 3.12, with asyncio's own pipes `wait` would wait for
    grandchildren that hold them open."""
    with _pipe() as (errors, errors_end), _pipe() as (signs, signs_end):
        log.debug("starting %s: %s", program.name, shlex.join(program.argv))
        more = ["--signs-fd", str(signs_end)] if program.gives_signs else []
        return Process(program, await asyncio.create_subprocess_exec(
            *program.argv, *more, stdin=asyncio.subprocess.DEVNULL, stderr=errors_end,
            pass_fds=[*program.fds, *([signs_end] if more else [])], start_new_session=True,
            env=program.environment, cwd=_directory()), errors, signs)


def _directory() -> str | None:
    """Returns the directory to start a process in: this one's, or the root if that was removed, where libraries would
    fail in ways of their own."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "/"
    return None


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Yields the end to read from and the child's end, which is closed after the block, where the child is started."""
    read_end, write_end = os.pipe()
    try:
        yield read_end, write_end
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
