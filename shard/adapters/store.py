"""The adapters that a shard has loaded."""

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch

from penstock.kernels.lora import Adapter
from penstock.shard.adapters.load import load_adapter
from penstock.shard.weights.sites import Adaptable
from penstock.system.fields import FileError

log = logging.getLogger(__name__)

NICENESS = 10                            # of the thread that loads: the one that runs the steps comes first


class AdapterStore:
    """Keeps adapters by their numbers. Any thread may use it; adapters are loaded on a thread of their own, one after
    the other.

    Each is loaded for the stream of an epoch, 0 standing for none, and is forgotten when a stream of another begins:
    whoever had it loaded has lost the shards, or is gone, and nobody calls it by this number any more.
    """

    def __init__(self, adaptable: Adaptable | None, begin_thread: Callable[[], None] = lambda: None) -> None:
        """adaptable: None if the model takes no adapters; begin_thread: what the thread that loads does first."""
        self._adaptable = adaptable
        self._adapters: dict[int, Adapter] = {}
        self._epochs: dict[int, int] = {}  # of all that are loaded, or wait for it
        self._epoch = 0
        self._changes = threading.Lock()
        self._loading = ThreadPoolExecutor(1, "adapters", initializer=_begin_thread, initargs=(begin_thread,))

    @property
    def takes_adapters(self) -> bool:
        return self._adaptable is not None

    def get(self, number: int) -> Adapter | None:
        return self._adapters.get(number)

    def load(self, number: int, path: Path, digest: str = "", epoch: int = 0) -> Future[int]:
        """Begins to load an adapter, in the place of another of this number, if there is one. The future's result is
        the bytes that it takes; it raises FileError."""
        with self._changes:
            self._epochs[number] = epoch
        return self._loading.submit(self._load, number, path, digest, epoch)

    def unload(self, number: int, epoch: int = 0) -> None:
        """Forgets an adapter, if there is one of this number and epoch, loaded or not yet; its memory goes back if no
        step runs with it."""
        with self._changes:
            if self._epochs.get(number) == epoch:
                self._forget(number)

    def begin(self, epoch: int) -> None:
        """Takes in that the stream of this epoch has begun: called before any of its steps, and behind all others."""
        with self._changes:
            self._epoch = epoch
            for number in [number for number, own in self._epochs.items() if own not in (0, epoch)]:
                self._forget(number)

    def clear(self) -> None:
        """Forgets all adapters."""
        with self._changes:
            for number in [*self._epochs]:
                self._forget(number)

    def _forget(self, number: int) -> None:
        self._epochs.pop(number, None)
        if self._adapters.pop(number, None) is not None:
            log.info("adapter %d is unloaded", number)

    def _load(self, number: int, path: Path, digest: str, epoch: int) -> int:
        if number == 0:
            raise FileError(path, "adapter 0 stands for none, numbers begin at 1")
        if self._adaptable is None:
            raise FileError(path, "the model is computed by transformers, which takes no adapters here")
        begin = time.monotonic()
        try:
            adapter = load_adapter(path, digest, self._adaptable)
        except Exception as error:
            with self._changes:
                if self._epochs.get(number) == epoch and number not in self._adapters:
                    del self._epochs[number]
            if isinstance(error, FileError):
                raise
            # A file that nobody foresaw is a fault of this adapter alone.
            log.exception("adapter %d of %s cannot be loaded", number, path)
            raise FileError(path, f"it cannot be loaded: {error!r:.500}") from error
        with self._changes:
            if 0 < epoch < self._epoch and self._epochs.get(number) == epoch:
                self._forget(number)
            if self._epochs.get(number) != epoch:
                raise FileError(path, "it was unloaded while it was loaded")
            self._adapters[number] = adapter
        log.info("adapter %d of %s is loaded: %.1f MB in %.2f s", number, path, adapter.num_bytes / 1e6,
                 time.monotonic() - begin)
        return adapter.num_bytes


def _begin_thread(begin: Callable[[], None]) -> None:
    begin()
    torch.set_num_threads(1)
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
