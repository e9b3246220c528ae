"""Tokenises long texts in processes of their own, which end at once when nobody waits for them any more."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import weakref
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from penstock.router.text.encoding import TokenizerError, TooManyTokens
from penstock.router.text.long_text_process import LENGTH, SECONDS
from penstock.system import child_environment

log = logging.getLogger(__name__)

MEDIUM_BYTES = 1 << 18
"""Longer texts wait for one another, and give way to everything else, so that these need not wait for them."""
BASE_MEMORY, MEMORY_PER_BYTE = 32 << 20, 480
"""The most memory that a text takes beyond the process's own. Measured: 130 to 440 bytes for each of the text."""
_FORKER_MEMORY, _FORKER_MEMORY_PER_BYTE = 40 << 20, 16
"""The memory of the process that forks the others, which share it: Python's, and for each byte of tokenizer.json."""
WALL_SECONDS = 120.0
"""Seconds for one text, by the clock on the wall, with the time in which its client reads the tokens."""
_NICE = 10
_ENDING_SECONDS = 10.0
_LOST = "a long text's process is lost: a new one tokenises it"
_COMMAND = (sys.executable, "-P", "-m", "penstock.router.text.long_text_process")


class ProcessLost(Exception):
    """Raised when a text's process has ended before it had answered."""


def _memory(num_bytes: int) -> int:
    return BASE_MEMORY + MEMORY_PER_BYTE * num_bytes


class LongTexts:
    """Has `num_workers` texts tokenised at once, and one more that is longer than `MEDIUM_BYTES`.

    The process that forks theirs is started for the first text. `file` returns a file descriptor of the tokenizer.json.
    """

    def __init__(self, file: Callable[[], int], num_workers: int) -> None:
        self._file = file
        self._num_workers = num_workers
        self._medium, self._large = asyncio.Semaphore(num_workers), asyncio.Semaphore(1)
        self._forkers: list[_Forker] = []  # one, or none
        self._sizes: list[int | None] = []  # one, once it is known
        self._ending: set[asyncio.Task[None]] = set()
        weakref.finalize(self, _end_all, self._forkers)

    def most_memory(self, tokenizer_size: int, longest: int) -> int:
        """Returns how many bytes all processes take for texts of up to `longest` bytes and a tokenizer.json of that
        size."""
        medium, large = min(longest, MEDIUM_BYTES), longest if longest > MEDIUM_BYTES else None
        return (_FORKER_MEMORY + _FORKER_MEMORY_PER_BYTE * tokenizer_size + self._num_workers * _memory(medium)
                + (0 if large is None else _memory(large)))

    def close(self) -> None:
        """Ends all of it, also what is under way."""
        _end_all(self._forkers)

    async def encode(
        self, text: str, add_special_tokens: bool, truncate: int | None, most: int | None
    ) -> tuple[int, ...]:
        """Returns the token ids of `text`, truncated. Raises TokenizerError, and TooManyTokens for more than `most`."""
        question = {"kind": "encode", "add_special_tokens": add_special_tokens, "truncate": truncate, "most": most}
        try:
            return await self._encode(question, text)
        except ProcessLost:
            log.warning(_LOST)
        try:
            return await self._encode(question, text)
        except ProcessLost as error:
            raise _lost_twice(text) from error

    async def _encode(self, question: dict[str, Any], text: str) -> tuple[int, ...]:
        async with self._asked(question, text) as (answer, link):
            number: int = answer["number"]
            if question["most"] is not None and number > question["most"]:
                raise TooManyTokens(number)
            ids = array("I")
            async for frame in _frames(link):
                ids.frombytes(frame)
            return tuple(ids)

    async def most_bytes_of_a_token(self) -> int | None:
        """Returns how many bytes of UTF-8 one token stands for at the most; None if there is no such number."""
        if not self._sizes:
            with suppress(ProcessLost):
                async with self._asked({"kind": "size"}, "") as (answer, _):
                    self._sizes.append(answer["number"])
        return self._sizes[0] if self._sizes else None

    async def split(self, text: str, add_special_tokens: bool) -> AsyncGenerator[bytes]:
        """Yields JSON lists, the tokens of `text`. Raises TokenizerError, and ProcessLost amid the tokens."""
        question = {"kind": "split", "add_special_tokens": add_special_tokens}
        num_yielded = 0
        for is_last in (False, True):
            try:
                async with self._asked(question, text) as (_, link):
                    async for frame in _frames(link):
                        num_yielded += 1
                        yield frame
                    return
            except ProcessLost as error:
                if num_yielded:
                    raise
                if is_last:
                    raise _lost_twice(text) from error
                log.warning(_LOST)

    @asynccontextmanager
    async def _asked(
        self, question: dict[str, Any], text: str
    ) -> AsyncIterator[tuple[dict[str, Any], socket.socket]]:
        """Yields the first frame of the answer, and the socket that brings the others. Raises TokenizerError, and
        ProcessLost."""
        content = text.encode("utf-8", "surrogatepass")
        is_large = len(content) > MEDIUM_BYTES
        limits = {"bytes": len(content), "memory": _memory(len(content)), "nice": _NICE * is_large}
        loop = asyncio.get_running_loop()
        async with self._turn(self._large if is_large else self._medium) as link:
            try:
                await loop.sock_sendall(link, json.dumps(question | limits).encode() + b"\n")
                await loop.sock_sendall(link, content)
                del content
                answer: dict[str, Any] = json.loads(await _frame(link))
            except ConnectionError as error:
                raise ProcessLost from error
            if "error" in answer:
                raise TokenizerError(answer["error"])
            yield answer, link

    @asynccontextmanager
    async def _turn(self, lane: asyncio.Semaphore) -> AsyncIterator[socket.socket]:
        """Yields a socket to a child, when it is this text's turn. The turn lasts until the child has ended."""
        await lane.acquire()
        try:
            link = self._connect()
        except BaseException:
            lane.release()
            raise
        try:
            async with asyncio.timeout(WALL_SECONDS) as limit:
                yield link
        except TimeoutError as error:
            if limit.expired():
                raise TokenizerError(f"the text takes more than {WALL_SECONDS:g} s") from error
            raise
        finally:
            ending = asyncio.create_task(self._end(link, lane))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def _connect(self) -> socket.socket:
        """Returns a socket to a new child. Raises TokenizerError if there can't be one."""
        try:
            ours, its = socket.socketpair()
            with its:
                if not self._forkers or not self._forkers[0].give(its):
                    _end_all(self._forkers)
                    self._forkers.append(_Forker(self._file()))
                    self._forkers[0].give(its)
        except OSError as error:
            raise TokenizerError(f"the process for long texts can't be started: {error}") from error
        ours.setblocking(False)
        return ours

    async def _end(self, link: socket.socket, lane: asyncio.Semaphore) -> None:
        """Has the child killed, unless it has ended, and ends its turn once it is gone."""
        loop = asyncio.get_running_loop()
        try:
            with suppress(OSError):
                link.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(_ENDING_SECONDS):
                    while await loop.sock_recv(link, 1 << 16):
                        pass
        except TimeoutError:
            log.warning("the process for long texts does not answer: a new one is started")
            _end_all(self._forkers)
        finally:
            link.close()
            lane.release()


class _Forker(subprocess.Popen[bytes]):
    """The process that forks a child for each socket that it is given."""

    def __init__(self, file: int) -> None:
        self._control, its = socket.socketpair()
        with its:
            try:
                super().__init__(
                    [*_COMMAND, str(file)], stdin=its.fileno(), pass_fds=[file], start_new_session=True,
                    env={**child_environment.for_text(), "TOKENIZERS_PARALLELISM": "false"})
            except OSError:
                self._control.close()
                raise
        self._control.setblocking(False)

    def give(self, link: socket.socket) -> bool:
        """Has a child answer on a socket; returns whether the process was there to take it."""
        if self.poll() is not None:
            return False
        try:
            socket.send_fds(self._control, [b"."], [link.fileno()])
        except OSError:
            return False
        return True

    def end(self) -> None:
        """Kills it and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        self._control.close()


def _end_all(forkers: list[_Forker]) -> None:
    while forkers:
        forkers.pop().end()


def _lost_twice(text: str) -> TokenizerError:
    memory = _memory(len(text.encode("utf-8", "surrogatepass")))
    return TokenizerError(f"the text takes more than {memory >> 20} MiB of memory or {SECONDS} s, or its process was "
                          "killed twice")


async def _frames(link: socket.socket) -> AsyncIterator[bytes]:
    while frame := await _frame(link):
        yield frame


async def _frame(link: socket.socket) -> bytes:
    [length] = LENGTH.unpack(await _read(link, LENGTH.size))
    return await _read(link, length)


async def _read(link: socket.socket, length: int) -> bytes:
    loop = asyncio.get_running_loop()
    content = bytearray()
    while len(content) < length:
        piece = await loop.sock_recv(link, length - len(content))
        if not piece:
            raise ProcessLost("a text's process has ended")
        content += piece
    return bytes(content)
