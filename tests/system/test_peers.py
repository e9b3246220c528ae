"""Users at the two ends of Unix sockets."""

import os
import socket
from pathlib import Path

import pytest

from penstock.system import peers
from tests.other_user import OTHER_USER, only_root, other_user


def listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o777)
    listener.listen()
    return listener


def connect(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    return link


def is_open(link: socket.socket) -> bool:
    try:
        return link.recv(1, socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True


def test_own_user_and_root_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert [user for user in (0, 1, 999, 1000, 1001, OTHER_USER) if peers.is_trusted(user)] == [0, 1000]


def test_both_ends_are_known_and_own_connections_stay(tmp_path: Path) -> None:
    path = str(tmp_path / "door")
    with listen(path) as listener:
        assert peers.listeners(path) == set()
        with connect(path) as caller, listener.accept()[0] as accepted:
            assert peers.user_of(caller) == peers.user_of(accepted) == os.geteuid()
            assert peers.listeners(path) == {os.geteuid()}
            assert peers.listeners(str(tmp_path / "other")) == set()
            assert peers.cut_off_strangers(path) == set()
            assert is_open(caller)
            assert is_open(accepted)


@only_root
def test_a_stranger_who_calls_is_cut_off_and_nobody_else(tmp_path: Path) -> None:
    path = str(tmp_path / "door")
    with listen(path) as listener, listen(f"{path}-2") as other, connect(path) as caller, listener.accept()[0]:
        with other_user(tmp_path):
            stranger, elsewhere = connect("door"), connect("door-2")
        with stranger, elsewhere, listener.accept()[0], other.accept()[0]:
            assert peers.cut_off_strangers(path) == {OTHER_USER}
            assert not is_open(stranger)
            assert is_open(elsewhere)
            assert is_open(caller)


@only_root
def test_a_stranger_who_listens_is_told(tmp_path: Path) -> None:
    with other_user(tmp_path), listen("door") as listener:
        name = listener.getsockname()
        os.seteuid(0)
        with connect(name):
            assert peers.listeners(name) == {OTHER_USER}
            assert peers.listeners(str(tmp_path / name)) == set()
