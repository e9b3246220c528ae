"""Ends this process: by itself, or with its parent."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from penstock.system.leftovers import remove_leftovers

POLL_SECONDS = 0.5
PATIENCE_SECONDS = 10.0


def leave(code: int, socket_path: Path | None = None, watch: "ParentWatch | None" = None) -> NoReturn:
    """End at once. The thread that runs steps may wait for another rank, and Python's own exit would wait for it.

    `socket_path` is that of a server that may still run, and so cannot remove it. A parent that is dead, as `watch`
    tells, can't remove the folder either.
    """
    if socket_path:
        socket_path.unlink(missing_ok=True)
    if watch is not None and watch.folder is not None and watch.is_orphan:
        remove_leftovers(watch.folder, watch.keeps_folder)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class ParentWatch:
    """Ends this process, as SIGTERM would, when it has lost its parent and is not needed any more.

    A parent that was killed can't end its children in order; then a router that runs on may still use this process, for
    `orphan_seconds` at the most. `folder` is that of the socket, and `keeps_folder` says that it is the user's.
    """

    def __init__(self, pid: int, orphan_seconds: float, keeps_folder: bool, folder: Path | None = None) -> None:
        self._pid = pid
        self._orphan_seconds = orphan_seconds
        self.keeps_folder = keeps_folder
        self.folder = folder
        self.is_needed: Callable[[], bool] = lambda: False
        threading.Thread(target=self._watch, name="parent-watch", daemon=True).start()

    @property
    def is_orphan(self) -> bool:
        return os.getppid() != self._pid

    def _watch(self) -> None:
        while not self.is_orphan:
            time.sleep(POLL_SECONDS)
        end = time.monotonic() + self._orphan_seconds
        while self.is_needed() and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE_SECONDS)
        os._exit(1)
