"""What is removed of a folder of sockets, and what stays."""

import socket
from pathlib import Path

from penstock.system.leftovers import CHECKPOINT_FOLDER, remove_leftovers


def test_the_last_removes_all(tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    (folder / "meet-3-0").touch()
    (folder / CHECKPOINT_FOLDER).mkdir()
    (folder / CHECKPOINT_FOLDER / "config.json").touch()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "shard-0"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "shard-1"))
        listener.listen()
        remove_leftovers(folder, keeps_folder=False)
        assert [path.name for path in folder.iterdir()] == ["shard-1"]
    remove_leftovers(folder, keeps_folder=False)
    assert not folder.exists()
    remove_leftovers(folder, keeps_folder=False)


def test_what_is_not_of_shards_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    remove_leftovers(tmp_path, keeps_folder=False)
    assert (tmp_path / "notes.txt").exists()


def test_a_folder_of_the_users_stays(tmp_path: Path) -> None:
    (tmp_path / "meet-0-0").touch()
    remove_leftovers(tmp_path, keeps_folder=True)
    assert list(tmp_path.iterdir()) == []
