"""The files of `penstock run-batch`: the requests, and the answers, which a run that was killed has left unfinished."""

import asyncio
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Self

import click
import httpx2
import orjson

from penstock.router.batches.answers import BEGIN

PART_BYTES = 1 << 20
CONNECT_SECONDS = 30.0
SILENT_SECONDS = 300.0
UPLOAD_PAUSES = (1.0, 4.0, 16.0, 64.0)
"""How long is waited before the answers are put at a URL again."""


MAX_REFERRALS = 5
KEPT = "The answers so far are in {0}; with -o {0} it goes on"


class NotAnswers(Exception):
    """Raised for a file that has something else than a batch's answers, or that another run is writing."""


def is_url(name: str) -> bool:
    """Tells whether a file is named by a URL."""
    return name.startswith(("http://", "https://"))


@contextmanager
def downloaded(name: str) -> Iterator[BinaryIO]:
    """Yields a file of requests, which can be read several times: one that is elsewhere, or a pipe, is copied first.
    Raises OSError."""
    if not is_url(name):
        with Path(name).open("rb") as file:
            if file.seekable():
                yield file
                return
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(file, copy)
                copy.seek(0)
                yield copy
        return
    with tempfile.TemporaryFile() as file:
        try:
            with _client() as client, client.stream("GET", name) as response:
                response.raise_for_status()
                for part in response.iter_bytes(PART_BYTES):
                    file.write(part)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise OSError(f"{name} can't be read: {error}") from error
        file.seek(0)
        yield file


def upload(answers: "AnswerFile", url: str) -> None:
    """Puts the answers at a URL, several times if its server is out of order. Raises OSError."""
    for pause in (*UPLOAD_PAUSES, None):
        try:
            with _client() as client:
                _put(client, answers, url)
            return
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            if pause is None or not _may_pass(error):
                raise OSError(f"{url} can't be written: {error}") from error
            time.sleep(pause)


def _put(client: httpx2.Client, answers: "AnswerFile", url: str) -> None:
    """Puts the answers at a URL, or where its server refers to: there from the beginning, and not with a GET, to which
    a client turns some referrals. Raises HTTPError."""
    response = client.put(url, content=answers.rewound(), follow_redirects=False)
    for _ in range(MAX_REFERRALS):
        there = response.next_request
        if there is None or there.method != response.request.method:
            break
        answers.rewound()
        response = client.send(there, follow_redirects=False)
    response.raise_for_status()


def _may_pass(error: Exception) -> bool:
    """Tells whether the same may succeed later."""
    if isinstance(error, httpx2.HTTPStatusError):
        status = error.response.status_code
        return (status >= HTTPStatus.INTERNAL_SERVER_ERROR
                or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS))
    return isinstance(error, httpx2.TransportError) and not isinstance(error, httpx2.UnsupportedProtocol)


def _client() -> httpx2.Client:
    return httpx2.Client(timeout=httpx2.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS), follow_redirects=True)


async def parts_of(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yields a file in parts, from its beginning. All else has its turn between them."""
    file.seek(0)
    while part := file.read(PART_BYTES):
        yield part
        await asyncio.sleep(0)


class AnswerFile:
    """The file of a batch's answers, to which one run at a time appends whole lines. `known` are the ids of the
    lines that it had at first, by their keys, as `key_of` has them."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._fault: OSError | None = None
        self.known = dict(_keys(file, name))

    @classmethod
    @contextmanager
    def opened(cls, name: str) -> Iterator[Self]:
        """Opens the file, a temporary one if it is to be put elsewhere, whose answers are kept if an error or Ctrl-C
        ends the block. The rest of a last line, which a killed run has left, is cut off. Raises NotAnswers for a file
        that has something else, and OSError."""
        if is_url(name):
            with tempfile.TemporaryFile(buffering=0) as file:
                answers = cls(file, name)
                try:
                    yield answers
                except BaseException as error:
                    if not os.fstat(file.fileno()).st_size:
                        raise
                    kept = KEPT.format(answers._keep())
                    if isinstance(error, Exception):
                        raise OSError(f"{error}\n{kept}") from error
                    click.echo(kept, err=True)
                    raise
            return
        with open(os.open(name, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as found:
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NotAnswers(f"{name} is written by another run") from None
            yield cls(found, name)

    def append(self, line: bytes) -> None:
        """Writes a line, which ends with a newline. Raises OSError, as where the disk is full; a part of it may be
        there then, for the next run to cut off: nothing is written behind it."""
        view = memoryview(line)
        try:
            if self._fault is not None:
                raise self._fault
            while view:
                view = view[self._file.write(view):]
        except OSError as error:
            self._fault = error
            raise OSError(f"{self._name} can't be written: {error}") from error

    def rewound(self) -> BinaryIO:
        """Returns the file, to be read from its beginning."""
        self._file.seek(0)
        return self._file

    def _keep(self) -> str:
        """Copies a temporary file to one with a name, and returns that."""
        with tempfile.NamedTemporaryFile(prefix="penstock-answers-", suffix=".jsonl", delete=False) as kept:
            shutil.copyfileobj(self.rewound(), kept)
        return kept.name


def key_of(custom_id: str | None, error: str | None) -> str:
    """Returns the name of a line among the answers: its id, or for a line that has none of its own its error."""
    return f"error {error}" if custom_id is None else f"id {custom_id}"


def _keys(file: BinaryIO, name: str) -> Iterator[tuple[str, str]]:
    """Yields the keys and ids of the lines of a file of answers, cuts off a last one that is not whole, and goes to the
    end."""
    end = 0
    with open(os.dup(file.fileno()), "rb") as reader:
        reader.seek(0)
        for number, line in enumerate(reader, 1):
            where = f"{name}: line {number}"
            if not line.endswith(b"\n"):
                if not (line.startswith(BEGIN) or BEGIN.startswith(line)):
                    raise _not_answers(where)
                break
            yield _key(line, where)
            end += len(line)
    file.truncate(end)
    file.seek(end)


def _key(line: bytes, where: str) -> tuple[str, str]:
    try:
        found = orjson.loads(line)
        error = found["error"]
        return key_of(found["custom_id"], error and error["message"]), found["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise _not_answers(where) from error


def _not_answers(where: str) -> NotAnswers:
    return NotAnswers(f"{where} is no answer of a batch: name a file that is not there yet, or that an earlier run has "
                      "begun")
