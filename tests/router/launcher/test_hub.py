"""Finding the checkpoint: directories, the Hub, and what is said when there is none."""

import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from penstock.router.config import InvalidArgument
from penstock.router.launcher import hub
from tests.paths import ROOT

FILES = ("config.json", "tokenizer.json", "model.safetensors")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).touch()
    return tmp_path


def test_directory_stays(checkpoint, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    assert hub.find(checkpoint.name) == hub.Checkpoint(checkpoint, None)
    assert hub.find(str(checkpoint), revision="v1") == hub.Checkpoint(checkpoint, "v1")


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(checkpoint, name):
    (checkpoint / name).unlink()
    with pytest.raises(InvalidArgument, match=f"{checkpoint} has no file {name.replace('model', '[*]')}"):
        hub.find(str(checkpoint))


@pytest.mark.parametrize("path", ["/nowhere/at/all", "./nothing", "~/nothing-here", "~no-such-user/model"])
def test_path_that_is_no_directory(path):
    with pytest.raises(InvalidArgument, match=f"there is no directory {path}"):
        hub.find(path)


def test_who_has_no_home_is_told_so_without_a_traceback(monkeypatch):
    """As in a container, for an id that /etc/passwd does not have."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(InvalidArgument, match="`model_id`: there is no directory ~/model"):
        hub.find("~/model")


def test_tilde_stands_for_the_home(checkpoint, monkeypatch):
    monkeypatch.setenv("HOME", str(checkpoint.parent))
    assert hub.find(f"~/{checkpoint.name}").path == checkpoint


def test_name_is_downloaded(tmp_path, monkeypatch):
    snapshot = tmp_path / "snapshots" / "0123abcd"
    asked = {}

    def download(name, **options):
        asked.update(options, name=name)
        snapshot.mkdir(parents=True)
        for file in FILES:
            (snapshot / file).touch()
        return str(snapshot)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert hub.find("org/model", "main", tmp_path) == hub.Checkpoint(snapshot, "0123abcd")
    assert (asked["name"], asked["revision"], asked["cache_dir"]) == ("org/model", "main", tmp_path)


@pytest.mark.parametrize(("name", "is_wanted"), [
    ("model-00001-of-00002.safetensors", True), ("model.safetensors.index.json", True), ("tokenizer.json", True),
    ("chat_template.jinja", True), ("additional_chat_templates/rag.jinja", True), ("chat_template.json", True),
    ("special_tokens_map.json", True), ("tokenizer/vocab.jinja", False),
    ("generation_config.json", True), ("pytorch_model.bin", False),
    ("consolidated.safetensors", False), ("onnx/config.json", False), ("original/tokenizer.model", False)])
def test_only_what_is_read_is_downloaded(name, is_wanted):
    wanted = huggingface_hub.utils.filter_repo_objects(
        [name], allow_patterns=hub.FILES, ignore_patterns=hub.NOT_FILES)
    assert list(wanted) == [name] * is_wanted


@pytest.mark.parametrize("error", [LocalEntryNotFoundError("no network"), ValueError("no such name")])
def test_failed_download_says_what_to_do(monkeypatch, error):
    def download(name, **options):
        raise error
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(InvalidArgument) as refusal:
        hub.find("org/model", "v2")
    message = str(refusal.value)
    assert "org/model at revision v2 is no directory" in message
    assert "`hf download org/model`" in message
    assert str(error) in message


def test_offline_is_honoured(tmp_path):
    code = f"from penstock.router.launcher import hub; hub.find('org/model', cache={str(tmp_path)!r})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                         cwd=ROOT, env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    assert "outgoing traffic has been disabled" in run.stderr
    assert "InvalidArgument" in run.stderr
