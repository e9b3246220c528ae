"""Ends this process: by itself, or with its parent."""

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

POLL_SECONDS = 0.5
PATIENCE_SECONDS = 10.0


def leave(code: int, socket_path: Path | None = None) -> NoReturn:
    """End at once. The thread that runs steps may wait for another rank, and Python's own exit would wait for it.

    `socket_path` is that of a server that still runs, and so cannot remove it.
    """
    if socket_path:
        socket_path.unlink(missing_ok=True)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def end_with_parent(pid: int) -> None:
    """End this process, as SIGTERM would, once `pid` is no longer its parent."""
    threading.Thread(target=_watch, args=(pid,), name="parent-watch", daemon=True).start()


def _watch(pid: int) -> None:
    while os.getppid() == pid:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)
