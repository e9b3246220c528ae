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
    """Keeps adapters by their numbers. Any thread may use it; adapters are loaded, and forgotten, on a thread of its
    own, one after the other as they are asked for: so a load that nobody waits for any more is not kept."""

    def __init__(self, adaptable: Adaptable | None, begin_thread: Callable[[], None] = lambda: None) -> None:
        """adaptable: None if the model takes no adapters; begin_thread: what the thread that loads does first."""
        self._adaptable = adaptable
        self._adapters: dict[int, Adapter] = {}
        self._epochs: dict[int, int] = {}
        self._loading = ThreadPoolExecutor(1, "adapters", initializer=_begin_thread, initargs=(begin_thread,))

    @property
    def takes_adapters(self) -> bool:
        return self._adaptable is not None

    def get(self, number: int) -> Adapter | None:
        return self._adapters.get(number)

    def load(self, number: int, path: Path, digest: str = "", epoch: int = 0) -> Future[int]:
        """Begins to load an adapter, in the place of another of this number, if there is one, for the stream of this
        epoch. The future's result is the bytes that it takes; it raises AdapterError."""
        return self._loading.submit(self._load, number, path, digest, epoch)

    def unload(self, number: int) -> Future[None]:
        """Begins to forget an adapter, if there is one of this number; its memory goes back if no step runs with it."""
        return self._loading.submit(self._unload, number)

    def keep_only(self, epoch: int) -> Future[None]:
        """Begins to forget the adapters of all streams but this one: whoever had them loaded has lost the shards, or is
        gone, and nobody will call them by these numbers."""
        return self._loading.submit(self._keep_only, epoch)

    def _keep_only(self, epoch: int) -> None:
        for number in [number for number, own in self._epochs.items() if own != epoch]:
            self._unload(number)

    def _unload(self, number: int) -> None:
        self._epochs.pop(number, None)
        if self._adapters.pop(number, None) is not None:
            log.info("adapter %d is unloaded", number)

    def _load(self, number: int, path: Path, digest: str, epoch: int) -> int:
        if number == 0:
            raise AdapterError(f"{path}: adapter 0 stands for none, numbers begin at 1")
        if self._adaptable is None:
            raise AdapterError(f"{path}: the model is computed by transformers, which takes no adapters here")
        begin = time.monotonic()
        try:
            adapter = load_adapter(path, digest, self._adaptable)
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise AdapterError(f"{path}: there is no memory for it: {str(error).splitlines()[0]}") from error
        self._adapters[number] = adapter
        self._epochs[number] = epoch
        log.info("adapter %d of %s is loaded: %.1f MB in %.2f s", number, path, adapter.num_bytes / 1e6,
                 time.monotonic() - begin)
        return adapter.num_bytes


def _begin_thread(begin: Callable[[], None]) -> None:
    begin()
    torch.set_num_threads(1)
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
