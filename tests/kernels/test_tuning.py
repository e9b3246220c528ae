"""What is measured once and looked up ever after."""

import errno
import json
import os
import time

import pytest
import torch
from triton.runtime.errors import OutOfResources

from penstock.kernels import dispatch, tuning
from penstock.kernels.linear import fixed_order
from penstock.kernels.linear.choices import choices
from tests import kernel_sets

SLOW, FAST, SLOWER = ({"BLOCK": block} for block in (1, 2, 3))
SECONDS = {1: 0.02, 2: 0.001, 3: 0.04}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuning.forget()
    yield tmp_path
    tuning.forget()


@pytest.fixture
def write():
    def write(content):
        tuning.path().parent.mkdir(parents=True, exist_ok=True)
        tuning.path().write_text(content if isinstance(content, str) else json.dumps(content))
        tuning.forget()
    return write


def run(config):
    time.sleep(SECONDS[config["BLOCK"]])
    return torch.ones(2)


def test_the_first_is_taken_where_nothing_is_saved():
    assert tuning.best("op", "key", [SLOW, FAST]) == SLOW


def test_the_fastest_is_saved_and_found():
    outcome = tuning.tune("op", "key", [SLOW, FAST, SLOWER], run)
    assert outcome.config == FAST
    assert outcome.seconds < outcome.default_seconds
    tuning.forget()
    assert tuning.best("op", "key", [SLOW, FAST]) == FAST
    assert tuning.best("op", "other key", [SLOW, FAST]) == SLOW
    assert tuning.best("other op", "key", [SLOW, FAST]) == SLOW


def test_only_so_many_are_tried_and_none_is_timed_or_saved_where_they_are_to_be_compiled():
    tried = []

    def note(config):
        tried.append(config)
        return torch.ones(2)

    with tuning.trying(2, is_timed=False):
        assert tuning.tune("op", "key", [SLOW, SLOWER, FAST], note).is_saved is False
    assert tried == [SLOW, SLOW, SLOWER], "the first gives what the others' results are compared with"
    assert not tuning.path().exists()
    with tuning.trying(2):
        assert tuning.tune("op", "key", [SLOW, SLOWER, FAST], run).config == SLOW
    assert tuning.tune("op", "key", [SLOW, SLOWER, FAST], run).config == FAST


def test_what_comes_with_the_package_is_taken_unless_this_gpu_was_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "SHIPPED", tmp_path / "tuned")
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / tuning.path().name).write_text(json.dumps({"op": {"key": FAST, "old": {"TILE": 1}}}))
    tuning.forget()
    assert tuning.best("op", "key", [SLOW, FAST, SLOWER]) == FAST
    assert tuning.best("op", "old", [SLOW, FAST]) == SLOW, "it is no candidate any more"
    assert tuning.best("op", "other", [SLOW, FAST]) == SLOW
    tuning._save("op", "key", SLOWER)
    tuning.forget()
    assert tuning.best("op", "key", [SLOW, FAST, SLOWER]) == SLOWER


def test_what_comes_with_the_package_for_another_gpu_is_not_taken(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "SHIPPED", tmp_path)
    (tmp_path / "NVIDIA of another kind.json").write_text(json.dumps({"op": {"key": FAST}}))
    tuning.forget()
    assert tuning.best("op", "key", [SLOW, FAST]) == SLOW


def test_the_first_stays_where_no_other_is_faster():
    assert tuning.tune("op", "key", [FAST, SLOW], run).config == FAST
    assert json.loads(tuning.path().read_text()) == {"op": {"key": FAST}}


def test_other_entries_stay_and_no_file_is_left_over(write):
    write({"op": {"other key": SLOWER}, "other op": {"key": SLOW}, "comment": 7})
    tuning.tune("op", "key", [SLOW, FAST], run)
    assert json.loads(tuning.path().read_text()) == {
        "op": {"other key": SLOWER, "key": FAST}, "other op": {"key": SLOW}, "comment": 7}
    assert list(tuning.path().parent.iterdir()) == [tuning.path()]


def test_what_changes_bits_is_left_out(monkeypatch, caplog):
    kernel_sets.use(monkeypatch, "gpu")
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", True)

    def run_with_bits(config):
        run(config)
        return torch.tensor(0.1 + config["BLOCK"] * 1e-9 * (config == FAST), dtype=torch.float64)

    assert tuning.tune("op", "key", [SLOW, FAST, SLOWER], run_with_bits).config == SLOW
    assert [record.message for record in caplog.records] == ["op, key: {'BLOCK': 2} changes bits and is left out"]
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", False)
    assert tuning.tune("op", "key", [SLOW, FAST, SLOWER], run_with_bits).config == FAST


def test_what_needs_more_than_the_gpu_has_is_left_out():
    def run_within_limits(config):
        if config == FAST:
            raise OutOfResources(300_000, 232_448, "shared memory")
        return run(config)

    assert tuning.tune("op", "key", [SLOW, FAST], run_within_limits).config == SLOW


@pytest.mark.parametrize("content", ["{", "", "[]", "7"])
def test_a_damaged_file_is_ignored_with_one_warning(write, caplog, content):
    write(content)
    for _ in range(3):
        assert tuning.best("op", "key", [SLOW, FAST]) == SLOW
    [record] = caplog.records
    assert str(tuning.path()) in record.message
    tuning.tune("op", "key", [SLOW, FAST], run)
    assert json.loads(tuning.path().read_text()) == {"op": {"key": FAST}}


def lose_the_home(monkeypatch, tmp_path):
    """As for an id that /etc/passwd does not have."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    return "the user has no home: ~/.cache"


def lose_the_folder(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    return f"Not a directory: {tmp_path}/file/penstock/tuning"


def fill_the_disk(monkeypatch, tmp_path):
    def dump(content, file, **_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(json, "dump", dump)
    return f"No space left on device: {tmp_path}/penstock/tuning"


@pytest.mark.parametrize("lose", [lose_the_home, lose_the_folder, fill_the_disk])
def test_what_cannot_be_kept_is_told_once(monkeypatch, tmp_path, caplog, lose):
    reason = lose(monkeypatch, tmp_path)
    assert tuning.best("op", "key", [SLOW, FAST]) == SLOW
    caplog.clear()
    for op in ("op", "other op"):
        outcome = tuning.tune(op, "key", [SLOW, FAST], run)
        assert (outcome.config, outcome.is_saved) == (FAST, False)
    assert [record.message for record in caplog.records if "kept" in record.message] == [
        f"What is measured cannot be kept: {reason}. XDG_CACHE_HOME names another folder, to have penstock/tuning in"]
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "file"] == []


@pytest.mark.parametrize("saved", [
    {"BLOCK": 64}, {"BLOCK": "2"}, {"BLOCK": 2, "num_warps": 4}, {}, [], "fast", 2])
def test_a_foreign_entry_is_ignored_with_one_warning(write, caplog, saved):
    write({"op": {"key": saved, "other": saved}, "other op": saved})
    for key in ("key", "other", "key"):
        assert tuning.best("op", key, [SLOW, FAST]) == SLOW
    [record] = caplog.records
    assert "what it holds for op is not of this version" in record.message


def test_linear_looks_it_up(write, gpu_kernels):
    x, weight = (torch.ones(rows, 64, device=dispatch.device()) for rows in (3, 40))
    shape = fixed_order.shape_of(x, weight, 8, torch.float32)
    found = choices(shape)
    write({"linear": {shape.key(): found[-1]}})
    fixed_order._config.cache_clear()
    assert fixed_order._config(shape) == found[-1] != found[0]
    fixed_order._config.cache_clear()
