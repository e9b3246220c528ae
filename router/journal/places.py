"""The places where records are written."""

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from penstock.router.journal.entry import Written


class Place(Protocol):
    """A place of records. Any exception means that the records are not there, and may be written again."""

    async def write(self, records: Sequence[Written]) -> None:
        """Adds records, all or none of them as far as that can be known."""


class InFile:
    """Appends lines to a file, which is moved aside before it would have more than `most` bytes. It may be moved by
    others at any time: it is opened for each write."""

    def __init__(self, file: Path, most: int | None = None) -> None:
        self._file = file
        self._most = most

    async def write(self, records: Sequence[Written]) -> None:
        await asyncio.to_thread(self._write, b"".join(record.line + b"\n" for record in records))

    def _write(self, lines: bytes) -> None:
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(descriptor, "ab", buffering=0) as file:
            size = os.fstat(descriptor).st_size
            if self._most is None or not size or size + len(lines) <= self._most:
                self._append(file.fileno(), size, lines)
                return
        self._file.rename(self._aside())
        self._write(lines)

    def _append(self, descriptor: int, size: int, lines: bytes) -> None:
        """Appends lines, or none of them where there is no room for all."""
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(descriptor, left):]
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    def _aside(self) -> Path:
        """Returns a new name for the file, by the time."""
        while True:
            now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y%m%dT%H%M%S.%f")
            aside = self._file.with_name(f"{self._file.stem}.{now}{self._file.suffix}")
            if not aside.exists():
                return aside
