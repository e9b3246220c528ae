"""Lists of models: in a file, in folders, and what is wrong with them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.launcher.model_list import ListedModel, read_file, read_repository
from penstock.system.arguments import InvalidArgument
from penstock.system.setting import FOREVER

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the file of models."""
    def write(text: str) -> Path:
        (tmp_path / "models.yaml").write_text(text)
        return tmp_path / "models.yaml"

    return write


def checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(("given", "seconds"), [
    ("0", 0), ("60", 60), ("2.5", 2.5), ("-1", FOREVER), ("5m", 300), ('"5m"', 300), ("1h", 3600), ("1h30m", 5400),
    ("500ms", 0.5), ("-1s", FOREVER), ('"0"', 0), ("90000000000h", 3.24e14)])
def test_a_model_stays_for_as_long_as_ollama_writes_it(write: Write, given: str, seconds: float) -> None:
    [model] = read_file(write(f"models: [{{name: a, keep_alive: {given}}}]")).models
    assert model.keep_alive == seconds


def test_an_alias_has_a_shadow(write: Write) -> None:
    found = read_file(write("models: [{name: a}, {name: b}]\naliases:\n  x: {targets: {a: 1}, shadow: {b: 0.1}}\n"
                            "  y: {targets: a, shadow: b}\n  z: {targets: 0.5, shadow: 0.5}\n"))
    assert found.aliases == {"x": {"a": 1.0}, "y": {"a": 1.0}, "z": {"targets": 0.5, "shadow": 0.5}}
    assert found.shadows == {"x": {"b": 0.1}, "y": {"b": 1.0}}


def test_a_file_has_models_and_aliases(write: Write) -> None:
    found = read_file(write("""
models:
  - {name: chat, model_id: /models/chat, num-shard: 2, kv_memory: 4GiB}
  - {name: vectors, model_id: org/vectors, pinned: true, keep_alive: 60}
aliases:
  assistant: chat
  mixed: {chat: 0.9, vectors: 1}
"""))
    assert found.models == (
        ListedModel("chat", {"model_id": "/models/chat", "num_shard": 2, "kv_memory": "4GiB"}),
        ListedModel("vectors", {"model_id": "org/vectors"}, is_pinned=True, keep_alive=60))
    assert found.aliases == {"assistant": {"chat": 1.0}, "mixed": {"chat": 0.9, "vectors": 1.0}}


@pytest.mark.parametrize(("text", "said"), [
    ("[]", "must have a list `models`"),
    ("models: []\nmore: 1", "must have a list `models`"),
    ("models: 1", "`models` must be a list. Given: 1"),
    ("models: []", "there are no models"),
    ("models: [1]", "model 1: a model must have names of options with their values. Given: 1"),
    ("models: [{model_id: x}]", "model 1: a model must have a `name`. Given: None"),
    ("models: [{name: a, pinned: 1}]", "a: `pinned` must be true or false. Given: 1"),
    ("models: [{name: a, keep_alive: x}]", "a: `keep_alive`: 'x' is not a number of seconds such as 300, 5m, or -1"),
    ("models: [{name: a, keep_alive: true}]", "a: `keep_alive`: True is not a number of seconds"),
    ("models: [{name: a, keep_alive: 5 m}]", "a: `keep_alive`: '5 m' is not a number of seconds"),
    ("models: [{name: a}, {name: a}]", "there are two models of the name a"),
    ("models: [{name: a}]\naliases: 1", "`aliases` must be an object. Given: 1"),
    ("models: [{name: a}]\naliases: {b: {a: x}}", "b must be the name of a model, or have names of models"),
    ("models: [{name: a}]\naliases: {b: {targets: a, shadow: 1}}", "b must be the name of a model, or have names"),
    ("models: [{name: a}]\naliases: {b: {targets: a, shadows: {a: 1}}}", "b must be the name of a model, or have"),
    ("models: [{name: a}]\naliases: {1: a}", "an alias must be a name. Given: 1"),
    ("models: [{name: a}]\naliases: {b: {}}", "b must be the name of a model, or have names of models"),
    ("models: {", "models.yaml: while parsing"),
])
def test_a_file_that_is_wrong_is_refused_with_its_name(write: Write, text: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        read_file(write(text))
    assert said in error.value.message
    assert "`models`: " in error.value.message
    assert "models.yaml" in error.value.message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot read .*: No such file"):
        read_file(tmp_path / "none.yaml")


def test_a_repository_has_a_folder_for_each_model(tmp_path: Path) -> None:
    checkpoint(tmp_path / "b")
    for version in ("3", "10"):
        checkpoint(tmp_path / "a" / version)
    (tmp_path / "a" / "config.yaml").write_text("pinned: true\ndtype: float32\n")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "config.yaml").write_text("model_id: org/model\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").touch()
    found = read_repository(tmp_path)
    assert found.models == (
        ListedModel("a@10", {"model_id": str(tmp_path / "a/10"), "dtype": "float32"}, is_pinned=True),
        ListedModel("a@3", {"model_id": str(tmp_path / "a/3"), "dtype": "float32"}),
        ListedModel("b", {"model_id": str(tmp_path / "b")}),
        ListedModel("c", {"model_id": "org/model"}))
    assert found.aliases == {"a": {"a@10": 1.0}}


@pytest.mark.parametrize(("config", "said"), [
    (None, "is no checkpoint, has no numbered versions, and no config.yaml"),
    ("name: x", "`name` is what the directory says"),
    ("[]", "must have names of options with their values"),
])
def test_a_repository_that_is_wrong_is_refused_with_its_name(tmp_path: Path, config: str | None, said: str) -> None:
    (tmp_path / "a").mkdir()
    if config is not None:
        (tmp_path / "a" / "config.yaml").write_text(config)
    with pytest.raises(InvalidArgument) as error:
        read_repository(tmp_path)
    assert said in error.value.message
    assert error.value.message.startswith(f"`model_repository`: {tmp_path}")


def test_a_model_of_a_repository_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "config.yaml").write_text("url: http://far:1\n")
    assert read_repository(tmp_path).models == (ListedModel("far", {"url": "http://far:1"}),)


def test_a_repository_must_be_a_folder_with_models(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no directory"):
        read_repository(tmp_path / "none")
    with pytest.raises(InvalidArgument, match="there are no models"):
        read_repository(tmp_path)
