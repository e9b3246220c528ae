"""Where nothing can be written, as in a container started with `--read-only`: one sentence says what is needed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.launcher.socket_folder import socket_folder
from penstock.system.arguments import InvalidArgument
from tests import namespaces
from tests.other_user import only_root, other_user
from tests.paths import DEMO_MODEL, ROOT

FULL = "mount -t tmpfs -o size=4k tmpfs {0}; head -c 4096 /dev/zero > {0}/file"
NO_MORE_FILES = "mount -t tmpfs -o nr_inodes=1 tmpfs {0}"


def run(command: list[str], tmp_path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    namespaces.need(command)
    serve = [sys.executable, "-m", "penstock", "serve", str(DEMO_MODEL), "--port", "0", *flags]
    return subprocess.run([*command, *serve], cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, text=True,
                          capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("mount", [
    pytest.param("true", id="read-only"), pytest.param(FULL, id="full"),
    pytest.param(NO_MORE_FILES, id="no more files", marks=pytest.mark.every_case)])
def test_sockets_need_a_folder(tmp_path: Path, mount: str) -> None:
    result = run(namespaces.read_only(mount.format(tmp_path)), tmp_path)
    assert result.returncode == 2
    assert re.fullmatch(
        r"Invalid argument: `shard_uds_path`: the shards' sockets need a folder, and no temporary one can be made: No "
        rf"usable temporary directory found in \['{tmp_path}', .*\]\. Name one that can be written by "
        r"`--shard-uds-path` or the variable TMPDIR, or give a container one by `--tmpfs /tmp`\n", result.stderr)


@pytest.mark.parametrize(("mount", "reason"), [
    pytest.param("true", "Read-only file system", id="read-only", marks=pytest.mark.every_case),
    pytest.param(NO_MORE_FILES, "No space left on device", id="no more files")])
def test_given_folder_that_cannot_be_made(tmp_path: Path, mount: str, reason: str) -> None:
    result = run(namespaces.read_only(mount.format(tmp_path)), tmp_path, "--shard-uds-path", str(tmp_path / "uds"))
    assert result.returncode == 2
    assert result.stderr == f"Invalid argument: `shard_uds_path`: cannot use {tmp_path}/uds: {reason}\n"


@only_root
def test_given_folder_that_cannot_be_looked_into(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    refusal = pytest.raises(InvalidArgument, match=r"cannot use .*/closed/uds: Permission denied")
    with other_user(tmp_path), refusal, socket_folder(Path("closed/uds"), 1):
        pass
