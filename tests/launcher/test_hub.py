"""Finding the checkpoint: directories, the Hub, and what is said when there is none."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest

from penstock.checkpoints import snapshot
from penstock.checkpoints.download import DownloadError
from penstock.launcher import hub
from penstock.system.arguments import InvalidArgument
from tests.gguf_files import FOLDER as GGUF_FILES
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


@pytest.mark.parametrize("names", [
    ["tokenizer.model"], ["tekken.json"], ["qwen.tiktoken"], ["vocab.json", "merges.txt"]])
def test_files_that_a_tokenizer_is_made_of_will_do(checkpoint, names):
    (checkpoint / "tokenizer.json").unlink()
    for name in names:
        with pytest.raises(InvalidArgument, match=r"nor what one can be made of: tekken\.json, tokenizer\.model"):
            hub.find(str(checkpoint))
        (checkpoint / name).touch()
    assert hub.find(str(checkpoint)).path == checkpoint


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(checkpoint, name):
    (checkpoint / name).unlink()
    with pytest.raises(InvalidArgument, match=f"{checkpoint} has no file {name.replace('model', '[*]')}"):
        hub.find(str(checkpoint))


def test_part_that_the_index_names_is_missed(checkpoint):
    (checkpoint / "model.safetensors").rename(checkpoint / "model-00001-of-00003.safetensors")
    names = {f"layer.{number}": f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)}
    index = checkpoint / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    with pytest.raises(InvalidArgument, match=r"no file model-00002-of-00003\.safetensors and 1 more, which its index"):
        hub.find(str(checkpoint))
    for name in names.values():
        (checkpoint / name).touch()
    assert hub.find(str(checkpoint)).path == checkpoint
    index.write_text("[]")
    with pytest.raises(InvalidArgument, match="is no index of safetensors files"):
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
    directory = tmp_path / "snapshots" / "0123abcd"
    directory.mkdir(parents=True)
    for file in FILES:
        (directory / file).touch()
    asked = []
    monkeypatch.setattr(snapshot, "fetch", lambda *arguments: asked.append(arguments) or directory)
    assert hub.find("org/model", "main", tmp_path, has_bars=True) == hub.Checkpoint(directory, "0123abcd")
    assert asked == [("org/model", "main", tmp_path, True)]


def test_gguf_file_stays_where_it_is_and_gets_a_directory(tmp_path):
    file = GGUF_FILES / "qwen2.gguf"
    found = hub.find(str(file), revision="v1")
    assert found == hub.Checkpoint(file, "v1")
    with hub.in_directory(found, tmp_path) as checkpoint:
        assert checkpoint.revision == "v1"
        names = {"config.json", "generation_config.json", "model.gguf.json", "tokenizer.json", "tokenizer_config.json"}
        assert {path.name for path in checkpoint.path.iterdir()} == names
        shutil.rmtree(checkpoint.path)
        hub.ensure(checkpoint)
        assert {path.name for path in checkpoint.path.iterdir()} == names
    assert list(tmp_path.iterdir()) == []


def test_a_directory_stays_what_it_is(checkpoint, tmp_path):
    with hub.in_directory(hub.find(str(checkpoint)), tmp_path) as found:
        assert found.path == checkpoint


def test_damaged_gguf_file_is_named(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with (pytest.raises(InvalidArgument, match=f"`model_id`: {file}: the header: the file is cut short"),
          hub.in_directory(hub.find(str(file)), tmp_path)):
        pass


def test_what_is_wrong_with_a_gguf_files_directory_is_said_of_the_file(tmp_path):
    file = GGUF_FILES / "qwen2.gguf"
    with (pytest.raises(InvalidArgument, match=rf"^`model_id`: {file}: no `vocab_size`"),
          hub.in_directory(hub.find(str(file)), tmp_path) as made):
        raise InvalidArgument(f"`model_id`: {made.path}/config.json: no `vocab_size`")


def test_directory_of_gguf_files_asks_for_one(tmp_path):
    for name in ("a-Q4_0.gguf", "b-Q8_0.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(InvalidArgument, match=rf"name one of them: {tmp_path}/a-Q4_0\.gguf, {tmp_path}/b-Q8_0\.gguf"):
        hub.find(str(tmp_path))


def test_gguf_file_that_is_not_there(tmp_path):
    with pytest.raises(InvalidArgument, match=r"there is no GGUF file /nowhere/model\.gguf"):
        hub.find("/nowhere/model.gguf")
    with pytest.raises(InvalidArgument, match=r"is named as ORGANISATION/NAME/FILE\.gguf"):
        hub.find("model.gguf")


def test_gguf_file_of_the_hub_is_downloaded_with_its_other_parts(tmp_path, monkeypatch):
    file = tmp_path / "0123abcd" / "model-Q4_K_M-00001-of-00002.gguf"
    file.parent.mkdir()
    file.touch()
    asked = []
    monkeypatch.setattr(snapshot, "fetch", lambda *names, **only: asked.append((names, only)) or file.parent)
    assert hub.find(f"org/model/{file.name}", "main") == hub.Checkpoint(file, "0123abcd")
    assert asked == [(("org/model", "main", None, False), {
        "files": ["model-Q4_K_M-?????-of-00002.gguf"], "not_files": []})]
    with pytest.raises(InvalidArgument, match=r"org/model has no file other\.gguf"):
        hub.find("org/model/other.gguf")


@pytest.mark.parametrize(("name", "is_wanted"), [
    ("model-00001-of-00002.safetensors", True), ("model.safetensors.index.json", True), ("tokenizer.json", True),
    ("chat_template.jinja", True), ("additional_chat_templates/rag.jinja", True), ("chat_template.json", True),
    ("special_tokens_map.json", True), ("tokenizer.model", True), ("tekken.json", True), ("qwen.tiktoken", True),
    ("tiktoken.model", True), ("vocab.json", True), ("merges.txt", True), ("original/tiktoken.model", False),
    ("tokenizer/vocab.jinja", False),
    ("generation_config.json", True), ("pytorch_model.bin", False),
    ("consolidated.safetensors", False), ("1_Pooling/config.json", False), ("onnx/config.json", False),
    ("original/tokenizer.model", False)])
def test_only_what_is_read_is_downloaded(name, is_wanted):
    wanted = huggingface_hub.utils.filter_repo_objects(
        [name], allow_patterns=snapshot.FILES, ignore_patterns=snapshot.NOT_FILES)
    assert list(wanted) == [name] * is_wanted


def test_failed_download_says_what_to_do(monkeypatch):
    def fetch(*arguments):
        raise DownloadError("the Hub is gone: wait")
    monkeypatch.setattr(snapshot, "fetch", fetch)
    with pytest.raises(InvalidArgument, match="`model_id`: org/model is no directory, and the Hub is gone: wait"):
        hub.find("org/model", "v2")


def test_offline_is_honoured(tmp_path):
    code = f"from penstock.launcher import hub; hub.find('org/model', cache={str(tmp_path)!r})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                         cwd=ROOT, env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    assert "HF_HUB_OFFLINE forbids downloads" in run.stderr
    assert "InvalidArgument" in run.stderr
