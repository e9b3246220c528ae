"""The signs that a shard gives while it loads, by which the launcher tells a long load from one that hangs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.shard import progress
from penstock.shard.communication.distributed import Group
from penstock.shard.progress import LoadProgress
from penstock.shard.startup.load import load
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.system.signs import Sign
from tests.shard.ranks import make_config
from tests.tiny_models import make_tiny


class Signs:
    """A pipe, and what was written to it."""

    def __init__(self) -> None:
        self._read_end, self.fd = os.pipe()
        os.set_blocking(self._read_end, False)

    def read(self) -> bytes:
        try:
            return os.read(self._read_end, 1 << 16)
        except BlockingIOError:
            return b""

    def stop_reading(self) -> None:
        os.close(self._read_end)


@pytest.fixture
def signs(monkeypatch: pytest.MonkeyPatch) -> Signs:
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0.0)
    return Signs()


def test_each_tensor_is_a_sign(signs: Signs) -> None:
    loading = LoadProgress(signs.fd)
    for number in range(1, 4):
        loading.read("weight", number, 3)
        assert signs.read() == Sign.ALIVE


def test_each_item_is_a_sign_before_it_takes_its_time(signs: Signs) -> None:
    for _ in LoadProgress(signs.fd).each([7, 8], doing="Compiling", unit="kernel"):
        assert signs.read() == Sign.ALIVE


def test_reading_a_checkpoint_gives_signs(signs: Signs, tmp_path: Path) -> None:
    model = make_tiny(tmp_path / "model")
    load(make_config(model), Group(), LoadProgress(signs.fd))
    assert signs.read() == Sign.ALIVE * len(Checkpoint(model).entries)


def test_signs_are_as_rare_as_the_launcher_looks(signs: Signs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0.5)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    loading = LoadProgress(signs.fd)
    for now[0], told in ((100.0, Sign.ALIVE), (100.25, b""), (100.5, Sign.ALIVE), (100.75, b"")):
        loading.tell()
        assert signs.read() == told


def test_ready_is_told_once(signs: Signs) -> None:
    loading = LoadProgress(signs.fd)
    loading.tell_ready()
    loading.tell_ready()
    loading.tell()
    assert signs.read() == Sign.READY


@pytest.mark.parametrize("tell", [LoadProgress.tell, LoadProgress.tell_ready], ids=["progress", "ready"])
def test_a_launcher_that_is_gone_is_not_an_error(signs: Signs, tell: Callable[[LoadProgress], None]) -> None:
    """The shard watches its parent, and ends in order."""
    signs.stop_reading()
    tell(LoadProgress(signs.fd))


def test_the_log_tells_every_10_seconds_where_there_are_no_bars(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    loading = LoadProgress(is_shown=True)
    with caplog.at_level("INFO"), loading.reading():
        for num_read in range(1, 31):
            now[0] += 1.0
            loading.read("weight", num_read, 290)
    assert caplog.messages == [f"Loading weights: {number} of 290 tensors" for number in (10, 20, 30)]
    assert "\r" not in capfd.readouterr().err


@pytest.mark.parametrize(("is_shown", "has_bars"), [(True, True), (False, True), (False, False)])
def test_the_log_tells_nothing_beside_bars_or_of_other_ranks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
    is_shown: bool, has_bars: bool,
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with caplog.at_level("INFO"):
        for _ in LoadProgress(is_shown=is_shown, has_bars=has_bars).each(range(9), "Compiling", "kernel"):
            now[0] += 60.0
    assert caplog.messages == []
    assert ("Compiling" in capfd.readouterr().err) == is_shown
