"""The draft model of the command line is found as the model is, and has the model's tokens."""

import json
import shutil
from pathlib import Path

import pytest

from penstock.launcher import draft_model
from penstock.launcher.config import LauncherConfig
from penstock.launcher.hub import Checkpoint
from penstock.launcher.launch import main
from penstock.launcher.programs import shard_program
from penstock.launcher.socket_folder import SocketFolder
from penstock.system.arguments import InvalidArgument
from tests.tiny_models import DEMO_MODEL


def parse(*arguments: str) -> LauncherConfig:
    given = ["--model-id", str(DEMO_MODEL), "--speculate", "4", *arguments]
    return LauncherConfig.from_options(main.make_context("launcher", given).params)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint that is a copy of the demo model's files, but for its weights."""
    copy = tmp_path / "draft"
    shutil.copytree(DEMO_MODEL, copy, ignore=shutil.ignore_patterns("*.safetensors"))
    (copy / "model.safetensors").touch()
    return copy


def test_it_is_found_and_told_to_the_shards(folder: Path, tmp_path: Path) -> None:
    config = parse("--draft-model-id", str(folder))
    assert draft_model.find(parse(), has_bars=False) is None
    found = draft_model.find(config, has_bars=False)
    assert found == folder
    program = shard_program(config, Checkpoint(DEMO_MODEL, None, draft=found), 0, SocketFolder(tmp_path, 1), "")
    assert json.loads(program.argv[-1])["draft_model"] == str(folder)
    without = shard_program(config, Checkpoint(DEMO_MODEL, None), 0, SocketFolder(tmp_path, 1), "")
    assert "draft_model" not in json.loads(without.argv[-1])


@pytest.mark.parametrize(("place", "message"), [
    ("/no/model", "`draft_model_id`: there is no directory /no/model"),
    ("a/b/c.gguf", "`draft_model_id`: a/b/c.gguf is a GGUF file; name a directory"),
])
def test_what_is_not_there_is_refused(place: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        draft_model.find(parse("--draft-model-id", place), has_bars=False)
    assert refusal.value.message.startswith(message)


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(InvalidArgument, match=r"`draft_model_id`: .* has no file \*\.safetensors"):
        draft_model.find(parse("--draft-model-id", str(folder)), has_bars=False)


def test_the_tokens_must_be_the_models(folder: Path) -> None:
    ours = DEMO_MODEL / "tokenizer.json"
    draft_model.check_tokens(folder, ours)
    content = json.loads((folder / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    (unused,) = [token for token, number in vocab.items() if number == len(vocab) - 1]
    vocab["never seen"] = vocab.pop(unused)
    content["model"]["merges"] = [pair for pair in content["model"]["merges"] if "".join(pair) != unused]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    draft_model.check_tokens(folder, ours)
    first, second = "Ġthe", "Ġof"
    vocab[first], vocab[second] = vocab[second], vocab[first]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InvalidArgument, match=r"`draft_model_id`: .* has other tokens than the model: 'The quick"):
        draft_model.check_tokens(folder, ours)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(InvalidArgument, match=r"`draft_model_id`: .*tokenizer.json cannot be read, to compare it"):
        draft_model.check_tokens(folder, ours)
