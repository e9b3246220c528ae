"""KV memory that outlives its shard: a file without a name, which the launcher holds open while it starts shards.

A shard that takes the place of a dead one finds there what the dead one had computed, so its sequences go on without
being computed again. The first page says what the rest is, and is written last, when everything else is true: so a
shard that is killed at any moment leaves either what its successor can use, or nothing. The launcher cuts the file to
that page when it does not trust the memory any more (a shard that broke down may have written anywhere); what is left
tells the next shard how much memory it had.
"""

import json
import logging
import mmap
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from penstock.system.memory_file import HEADER_BYTES

log = logging.getLogger(__name__)

DATA_OFFSET = 2 << 20                    # a huge page, so that those of the data can be huge
CHUNK_BYTES = 2 << 20                    # that are reserved at once


@dataclass(frozen=True, slots=True)
class Header:
    """Says what a file holds. `id` is new each time that the memory begins empty; `is_whole` tells whether it is there.

    `layout` names everything that decides what a byte of the memory means. `first_blocks` is the number of blocks that
    the first shard had: a later one may have found room for fewer, but the next tries to have them all again.
    """

    layout: str
    id: str
    num_blocks: int
    first_blocks: int
    step_tokens: int
    is_whole: bool = True
    num_states: int = 0                  # of sequences that could run at once; 0 if the model keeps none


class KeptMemory:
    """The KV memory of one shard in the file `fd`, whose content is of use only to a shard of the same `layout`."""

    def __init__(self, fd: int, layout: str) -> None:
        self._fd = fd
        self._layout = layout
        self.found = self._read()
        """The state that another shard left in the file; None if it is of no use."""
        self.is_reserved = False
        self._is_closed = False
        self._reserving: threading.Thread | None = None

    @property
    def num_bytes(self) -> int:
        """The bytes that were mapped."""
        return len(self._map)

    def map(self, num_bytes: Sequence[int]) -> list[Tensor]:
        """Returns memory of each of these sizes, uint8, as it was left if it `found.is_whole`, otherwise zeros.

        Raises OSError if the file can't have so many bytes.
        """
        offsets = [0]
        for size in num_bytes:
            offsets.append(offsets[-1] + -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        if self.found is None or not self.found.is_whole:
            self._empty()
        os.ftruncate(self._fd, DATA_OFFSET + offsets[-1])
        # Without the first page: what is written to a wrong place must not spoil it.
        self._map = mmap.mmap(self._fd, offsets[-1], offset=DATA_OFFSET)
        with suppress(OSError):          # of a system that has no huge pages
            self._map.madvise(mmap.MADV_HUGEPAGE)
        return [torch.frombuffer(self._map, dtype=torch.uint8, count=size, offset=offset)
                for size, offset in zip(num_bytes, offsets, strict=False)]

    def forget(self) -> None:
        """Forgets the file's content, though it may be of use to this shard: the others of its group have none."""
        if self.found is not None:
            self.found = replace(self.found, is_whole=False)
            self._write(self.found)

    def seal(self, num_blocks: int, step_tokens: int, num_states: int = 0) -> Header:
        """Declares that the memory is in use from now on, and returns its header: the one that was found, or a new
        one."""
        if self.found is None or not self.found.is_whole:
            first_blocks = self.found.first_blocks if self.found else num_blocks
            self.found = Header(
                self._layout, secrets.token_hex(8), num_blocks, first_blocks, step_tokens, num_states=num_states)
            self._write(self.found)
        return self.found

    def reserve(self, tell: Callable[[], None] = lambda: None) -> None:
        """Has the system give all of the memory, so that no later step is the first to ask for a page. Calls `tell` for
        each part of it. Raises OSError if there is not so much."""
        for offset in range(0, len(self._map), CHUNK_BYTES):
            if self._is_closed:
                return
            os.posix_fallocate(self._fd, DATA_OFFSET + offset, min(CHUNK_BYTES, len(self._map) - offset))
            tell()
        self.is_reserved = True

    def reserve_in_idle_time(self) -> None:
        """Has a thread reserve the memory, in time that nothing else on the machine wants."""
        self._reserving = threading.Thread(target=self._reserve_politely, name="reserve", daemon=True)
        self._reserving.start()

    def close(self) -> None:
        """Asks for no more of the memory, which the launcher is about to give back to the system."""
        self._is_closed = True
        if self._reserving is not None:
            self._reserving.join()

    def _reserve_politely(self) -> None:
        with suppress(OSError):          # of a system that refuses it, which only makes this less polite
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # 0 stands for this thread
        try:
            self.reserve()
        except OSError as error:
            log.warning("the KV memory is not reserved: %s", error.strerror)

    def _empty(self) -> None:
        """Cuts the file to its first page, which says of what was found only how large it was."""
        os.ftruncate(self._fd, 0)
        if self.found is not None:
            self._write(self.found)

    def _write(self, header: Header) -> None:
        os.pwrite(self._fd, json.dumps(asdict(header)).encode().ljust(HEADER_BYTES), 0)

    def _read(self) -> Header | None:
        page = os.pread(self._fd, HEADER_BYTES, 0).strip(b"\0 ")
        if not page:
            return None
        try:
            header = Header(**json.loads(page))
        except (ValueError, TypeError, RecursionError):  # whatever spoilt it, a shard can begin without
            return None
        is_whole = header.is_whole and os.fstat(self._fd).st_size > HEADER_BYTES
        return replace(header, is_whole=is_whole) if header.layout == self._layout else None
