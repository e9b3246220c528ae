"""The files of `penstock run-batch`: the requests, and the answers, which a run that was killed has left unfinished."""

import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self

import httpx2
import orjson

PART_BYTES = 1 << 20
CONNECT_SECONDS = 30.0
SILENT_SECONDS = 300.0


class NotAnswers(Exception):
    """Raised for a file that has something else than a batch's answers, or that another run is writing."""


def is_url(name: str) -> bool:
    """Tells whether a file is named by a URL."""
    return name.startswith(("http://", "https://"))


@contextmanager
def downloaded(name: str) -> Iterator[BinaryIO]:
    """Yields a file of requests, which is downloaded first if it is elsewhere. Raises OSError."""
    if not is_url(name):
        with Path(name).open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as file:
        try:
            with _client() as client, client.stream("GET", name) as response:
                response.raise_for_status()
                for part in response.iter_bytes(PART_BYTES):
                    file.write(part)
        except httpx2.HTTPError as error:
            raise OSError(f"{name} can't be read: {error}") from error
        file.seek(0)
        yield file


def upload(answers: "AnswerFile", url: str) -> None:
    """Puts the answers at a URL. Raises OSError."""
    try:
        with _client() as client:
            client.put(url, content=answers.read()).raise_for_status()
    except httpx2.HTTPError as error:
        raise OSError(f"{url} can't be written: {error}") from error


def _client() -> httpx2.Client:
    return httpx2.Client(timeout=httpx2.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS), follow_redirects=True)


async def parts_of(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yields a file in parts, from its beginning."""
    file.seek(0)
    while part := file.read(PART_BYTES):
        yield part


class AnswerFile:
    """The file of a batch's answers, to which one run at a time appends whole lines. `known` are the keys of the lines
    that it had at first, as `key_of` has them."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self.known = frozenset(_keys(file, name))

    @classmethod
    @contextmanager
    def opened(cls, name: str) -> Iterator[Self]:
        """Opens the file, a temporary one if it is to be put elsewhere. What a killed run has left of its last line is
        cut off. Raises NotAnswers for a file that has something else, and OSError."""
        if is_url(name):
            with tempfile.TemporaryFile() as file:
                yield cls(file, name)
            return
        with open(os.open(name, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as found:
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NotAnswers(f"{name} is written by another run") from None
            yield cls(found, name)

    def append(self, line: bytes) -> None:
        """Writes a line, which ends with a newline. Raises OSError, as where the disk is full; a part of it may be
        there then, for the next run to cut off."""
        view = memoryview(line)
        while view:
            view = view[self._file.write(view):]

    def read(self) -> bytes:
        """Returns the content."""
        self._file.seek(0)
        return self._file.read()


def key_of(custom_id: str | None, error: str | None) -> str:
    """Returns the name of a line among the answers: its id, or for a line that has none of its own its error."""
    return f"error {error}" if custom_id is None else f"id {custom_id}"


def _keys(file: BinaryIO, name: str) -> Iterator[str]:
    """Yields the keys of the lines of a file of answers, cuts off a last line that is not whole, and goes to the end.
    """
    end = 0
    with open(os.dup(file.fileno()), "rb") as reader:
        reader.seek(0)
        for number, line in enumerate(reader, 1):
            if not line.endswith(b"\n"):
                break
            yield _key(line, f"{name}: line {number}")
            end += len(line)
    file.truncate(end)
    file.seek(end)


def _key(line: bytes, where: str) -> str:
    try:
        found = orjson.loads(line)
        error = found["error"]
        return key_of(found["custom_id"], error and error["message"])
    except (ValueError, KeyError, TypeError) as error:
        raise NotAnswers(f"{where} is no answer of a batch: name a file that is not there yet, or that an earlier run "
                         "has begun") from error
