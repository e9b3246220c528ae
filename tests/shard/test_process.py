"""How a shard's process ends when its parent is dead: what it removes, and what is the user's."""

import subprocess
import sys
from pathlib import Path

import pytest

ORPHAN = """
import signal
import sys
from pathlib import Path
from penstock.shard import process

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which the watch sends
watch = process.ParentWatch(-1, 100.0, keeps_folder=sys.argv[2] == "True", folder=Path(sys.argv[1]).parent)
process.leave(3, Path(sys.argv[1]), watch)
"""


@pytest.mark.parametrize("keeps_folder", [True, False])
def test_an_orphan_removes_its_socket_and_a_folder_that_is_not_the_users(tmp_path: Path, keeps_folder: bool) -> None:
    path = tmp_path / "sockets/shard-0"
    path.parent.mkdir()
    path.touch()
    run = subprocess.run([sys.executable, "-c", ORPHAN, str(path), str(keeps_folder)], check=False)
    assert run.returncode == 3
    assert not path.exists()
    assert path.parent.exists() == keeps_folder
