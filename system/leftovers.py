"""The files that killed processes leave behind in the folder of their sockets."""

import shutil
import socket
from contextlib import suppress
from pathlib import Path

CHECKPOINT_FOLDER = "penstock-gguf"
"""Where the tokenizer and the configuration of a GGUF file are, which shards and router read while they start."""
ENGINE_SOCKET = ".engine"
"""Where the router's process that has the engine listens for those that answer clients."""
ALIASES_FILE = ".aliases"
"""Where a router writes what names stand for which models, for the next one; first beside it, under a longer name."""
METRICS_FOLDER = ".metrics"
"""Where the router's processes count together."""


def remove_leftovers(folder: Path, keeps_folder: bool) -> None:
    """Removes the files by which shards met, the sockets where nobody listens any more, what was made of a GGUF file,
    what was counted, and, unless the user keeps it, the folder if nothing is left in it: so the last process of a
    server whose launcher was killed removes it."""
    with suppress(OSError):
        for file in (*folder.glob("meet-*"), *folder.glob(f"{ALIASES_FILE}*")):
            file.unlink(missing_ok=True)
        for path in [*folder.glob("shard-*"), *folder.glob(ENGINE_SOCKET)]:
            if not is_heard(path):
                path.unlink(missing_ok=True)
        for own in (CHECKPOINT_FOLDER, METRICS_FOLDER):
            shutil.rmtree(folder / own, ignore_errors=True)
        if not keeps_folder:
            folder.rmdir()


def is_heard(path: Path) -> bool:
    """Returns whether anybody listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            pass
        return True
