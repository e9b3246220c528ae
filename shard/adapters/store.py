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
from penstock.shard.adapters.error import AdapterError
from penstock.shard.adapters.load import load_adapter
from penstock.shard.weights.sites import Adaptable

log = logging.getLogger(__name__)

NICENESS = 10                            # of the thread that loads: the one that runs the steps comes first


class AdapterStore:
    """Keeps adapters by their numbers. Any thread may use it; adapters are loaded on a thread of their own."""

    def __init__(self, adaptable: Adaptable | None, begin_thread: Callable[[], None] = lambda: None) -> None:
        """adaptable: None if the model takes no adapters; begin_thread: what the thread that loads does first."""
        self._adaptable = adaptable
        self._adapters: dict[int, Adapter] = {}
        self._loading = ThreadPoolExecutor(1, "adapters", initializer=_begin_thread, initargs=(begin_thread,))

    @property
    def takes_adapters(self) -> bool:
        return self._adaptable is not None

    def get(self, number: int) -> Adapter | None:
        return self._adapters.get(number)

    def load(self, number: int, path: Path, digest: str = "") -> Future[int]:
        """Begins to load an adapter, in the place of another of this number, if there is one. The future's result is
        the bytes that it takes; it raises AdapterError."""
        return self._loading.submit(self._load, number, path, digest)

    def unload(self, number: int) -> None:
        """Forgets an adapter, if there is one of this number; its memory goes back at once if no step runs with it."""
        if self._adapters.pop(number, None) is not None:
            log.info("adapter %d is unloaded", number)

    def _load(self, number: int, path: Path, digest: str) -> int:
        if number == 0:
            raise AdapterError(f"{path}: adapter 0 stands for none, numbers begin at 1")
        if self._adaptable is None:
            raise AdapterError(f"{path}: the model is computed by transformers, which takes no adapters here")
        begin = time.monotonic()
        adapter = load_adapter(path, digest, self._adaptable)
        self._adapters[number] = adapter
        log.info("adapter %d of %s is loaded: %.1f MB in %.2f s", number, path, adapter.num_bytes / 1e6,
                 time.monotonic() - begin)
        return adapter.num_bytes


def _begin_thread(begin: Callable[[], None]) -> None:
    begin()
    torch.set_num_threads(1)
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
