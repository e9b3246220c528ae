"""The digest of a checkpoint's weights: of all that its tensors say, whatever files they are in.

It is computed in threads of its own, beside the load that reads the same files, and kept: see digest_cache.py.
"""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from penstock.shard.weights import digest_cache
from penstock.shard.weights.digest_cache import Stamp
from penstock.shard.weights.stored import CheckpointError, Entry, Span, TensorFiles

PIECE_BYTES = 8 << 20
"""Of a tensor that one thread digests at once. Another size gives other digests: it is part of the cache's version."""
AHEAD_BYTES = 4 * PIECE_BYTES
"""So far ahead of the pieces that are digested the system is asked to read."""
READ_BYTES = 1 << 20
MAX_THREADS = 8
"""At 4 GB/s each, more would wait for whatever they read from."""
MIN_KEPT_BYTES = 64 << 20
"""Of a file whose digests are worth keeping: a smaller one takes 20 ms."""


class _Piece(NamedTuple):
    path: Path
    whole: Span                          # the tensor that it is a part of
    own: Span


class WeightsDigest:
    """Begins to digest the tensors of files, but for those whose digests are kept; `hex` waits for the result.

    Raises CheckpointError for a file that is gone.
    """

    def __init__(self, files: TensorFiles) -> None:
        self._entries = files.entries
        self._stamps = stamps(files)
        self._is_settled = {path: stamp.is_settled() for path, stamp in self._stamps.items()}
        self._known = {path: digest_cache.load(path, stamp) for path, stamp in self._stamps.items()}
        wanted = {(entry.path, entry.span) for entry in files.entries.values()}
        self._missing = sorted((path, span) for path, span in wanted if span not in self._known[path])
        self._digests: dict[_Piece, bytes] = {}
        pieces = [_Piece(path, span, own) for path, span in self._missing for own in _pieces(span)]
        self._todo = iter(pieces)
        self._lock = threading.Lock()
        self._error: OSError | ValueError | None = None
        number = min(MAX_THREADS, len(pieces), len(_processors()))
        self._threads = [threading.Thread(target=self._work, name="digest", daemon=True) for _ in range(number)]
        for thread in self._threads:
            thread.start()

    @property
    def num_done(self) -> int:
        """How many pieces were digested."""
        return len(self._digests)

    def wait(self, seconds: float) -> bool:
        """Waits for at most so long; tells whether all pieces are done."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def hex(self) -> str:
        """Returns the digest. Raises CheckpointError for a file that can't be read, or was changed meanwhile."""
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise CheckpointError(f"the weights can't be digested: {self._error}") from self._error
        check_unchanged(self._stamps)
        for path, span in self._missing:
            self._known[path][span] = _joined([self._digests[_Piece(path, span, own)] for own in _pieces(span)])
        for path in {path for path, _ in self._missing if self._is_settled[path]}:
            if self._stamps[path].num_bytes >= MIN_KEPT_BYTES:
                digest_cache.save(path, self._stamps[path], self._known[path])
        return _combined(self._entries, self._known)

    def _work(self) -> None:
        with suppress(OSError, AttributeError):  # of a system without such calls; the thread that loads has one core
            os.sched_setaffinity(0, _processors())
        try:
            while (piece := self._next()) is not None:
                self._digests[piece] = _digest(piece)
        except (OSError, ValueError) as error:
            with self._lock:
                self._error, self._todo = error, iter(())

    def _next(self) -> _Piece | None:
        with self._lock:
            return next(self._todo, None)


def stamps(files: TensorFiles) -> dict[Path, Stamp]:
    """Returns the system's stamp of each file now. Raises CheckpointError."""
    return {path: _stamp(path) for path in files.paths}


def check_unchanged(before: Mapping[Path, Stamp]) -> None:
    """Raises CheckpointError if a file is another one than when its stamp was taken."""
    for path, stamp in before.items():
        if _stamp(path) != stamp:
            raise CheckpointError(f"{path} was changed while it was read")


def _stamp(path: Path) -> Stamp:
    try:
        return Stamp.of(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error


def _processors() -> set[int]:
    """Returns where the process may run, whatever core the calling thread is to stay on."""
    return os.sched_getaffinity(os.getpid()) if hasattr(os, "sched_getaffinity") else {*range(os.cpu_count() or 1)}


def _pieces(whole: Span) -> Iterator[Span]:
    end = whole.offset + whole.num_bytes
    for offset in range(whole.offset, end, PIECE_BYTES):
        yield Span(offset, min(PIECE_BYTES, end - offset))


def _digest(piece: _Piece) -> bytes:
    """Raises OSError and ValueError for bytes that the file has not. They are not mapped: a file that is cut short, or
    a disk that fails, would end the process."""
    offset, num_bytes = piece.own
    found, buffer = blake3(), memoryview(bytearray(min(READ_BYTES, num_bytes)))
    with piece.path.open("rb", buffering=0) as file:
        with suppress(OSError, AttributeError):  # it is only advice
            os.posix_fadvise(file.fileno(), offset + AHEAD_BYTES, num_bytes, os.POSIX_FADV_WILLNEED)
        file.seek(offset)
        while num_bytes:
            num_read = file.readinto(buffer[:num_bytes])
            if not num_read:
                raise ValueError(f"{piece.path} ends at byte {os.fstat(file.fileno()).st_size}, before a tensor does")
            found.update(buffer[:num_read])
            num_bytes -= num_read
    return found.digest()


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else blake3(b"".join(pieces)).digest()


def _combined(entries: Mapping[str, Entry], digests: Mapping[Path, Mapping[Span, bytes]]) -> str:
    """Returns the digest of all tensors: of their names, dtypes and shapes, and the bytes of each, by name."""
    found = blake3()
    for name, entry in sorted(entries.items()):
        said = [name, entry.dtype, entry.shape, entry.form, digests[entry.path][entry.span].hex()]
        found.update(json.dumps(said).encode() + b"\n")
    return found.hexdigest()
