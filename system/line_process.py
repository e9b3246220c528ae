"""Processes that answer lines of JSON by lines of JSON, with a bound for each: what runs in them may take any time and
memory, and nobody else waits for it.

The first line tells a process what it is for. It answers with an object, whose `error` says why it can't be of use.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from penstock.system import child_environment

NUM_PROCESSES = 2
START_SECONDS = 60.0
"""How long a process may take until it is of use, which may import anything."""
MAX_LINE = 1 << 23
"""The most bytes of an answer of a process."""


class UselessError(Exception):
    """Raised when a process says that it can't be of use."""


class LostError(Exception):
    """Raised when a process ended or did not answer in time; the message says which."""


class LineProcess:
    """A process of a module, for one question at a time. It is started anew when it came to its end."""

    def __init__(self, module: str, first: bytes, what: str) -> None:
        """Takes the line that begins; `what` says what runs in the process, in the plural."""
        self._command = (sys.executable, "-P", "-m", module)
        self._first = first
        self._what = what
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts it, if it does not run. Raises UselessError and LostError."""
        if self._process is not None and self._process.returncode is None:
            return
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=MAX_LINE,
                env=child_environment.for_text())
        except OSError as error:
            raise LostError(f"the process of {self._what} can't be started: {error}") from error
        reply = await self._exchange(self._first, START_SECONDS)
        if "error" in reply:
            await self.end()
            raise UselessError(reply["error"])

    async def ask(self, question: bytes, seconds: float) -> dict[str, Any]:
        """Returns the reply to a question. Raises LostError."""
        try:
            await self.start()
        except UselessError as error:  # a file was changed
            raise LostError(str(error)) from error
        return await self._exchange(question, seconds)

    async def _exchange(self, line: bytes, seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                if process.stdin.is_closing():  # of which uvloop would tell by a RuntimeError
                    raise BrokenPipeError
                process.stdin.write(line)
                await process.stdin.drain()
                reply = await process.stdout.readline()
        except TimeoutError:
            await self.end()
            raise LostError(f"{self._what} took more than {seconds:g} s") from None
        except (ConnectionError, ValueError):
            reply = b""
        except BaseException:
            await self.end()  # whoever asks next must not get this reply
            raise
        if not reply:
            await self.end()
            raise LostError(f"the process of {self._what} has ended with status {process.returncode}")
        found: dict[str, Any] = json.loads(reply)
        return found

    async def end(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


class LineProcesses:
    """Several processes of a module, each of which is started when it is first asked."""

    def __init__(self, module: str, first: Mapping[str, Any], what: str) -> None:
        line = json.dumps(first).encode() + b"\n"
        self._all = [LineProcess(module, line, what) for _ in range(NUM_PROCESSES)]
        self._free: asyncio.LifoQueue[LineProcess] = asyncio.LifoQueue()
        for process in self._all:
            self._free.put_nowait(process)

    async def start(self) -> None:
        """Starts the one that is asked first. Raises UselessError and LostError."""
        await self._all[-1].start()

    async def ask(self, question: bytes, seconds: float) -> dict[str, Any]:
        """Returns the reply of the next process that is free, within `seconds` from then on. Raises LostError."""
        process = await self._free.get()
        try:
            return await process.ask(question, seconds)
        finally:
            self._free.put_nowait(process)

    async def close(self) -> None:
        """Ends all of them."""
        for process in self._all:
            await process.end()
