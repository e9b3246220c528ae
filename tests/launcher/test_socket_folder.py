"""The folder of the shards' sockets, when others meddle with it under a running server."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.launcher.socket_folder import SocketFolder, socket_folder
from penstock.system.arguments import InvalidArgument


def make_open(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def make_file(path: Path) -> None:
    path.touch(0o700)


@pytest.mark.parametrize("make", [make_open, make_file])
def test_what_others_put_in_its_place_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    with socket_folder(tmp_path / "uds", 1) as folder:
        folder.path.rmdir()
        make(folder.path)
        for _ in range(2):
            with pytest.raises(InvalidArgument, match="must be a folder of yours that nobody else may enter"):
                folder.prepare()
        assert folder.lock_fd < 0


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(InvalidArgument, match="must be a folder of yours"), socket_folder(tmp_path, 1):
        pass


def test_folder_can_be_made_again_once_its_parent_is_back(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    folder = SocketFolder(parent / "uds")
    folder.prepare()
    folder.path.rmdir()
    parent.rmdir()
    parent.touch()
    for _ in range(2):
        with pytest.raises(NotADirectoryError):
            folder.prepare()
    parent.unlink()
    folder.prepare()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.close()
