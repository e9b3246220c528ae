"""Where a tokenizer.json is found or made."""

import logging
import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from penstock.checkpoints.tokenizers import place
from penstock.checkpoints.tokenizers.place import tokenizer_of
from penstock.checkpoints.tokenizers.sources import find
from penstock.system.arguments import InvalidArgument
from tests.checkpoints.tokenizers.test_gpt2 import LINES
from tests.checkpoints.tokenizers.texts import DEMO, write
from tests.paths import DEMO_MODEL

NOWHERE = Path("/proc/nothing")
"""Where even root can't write."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "model"
    made.mkdir()
    write(made, vocab__json=DEMO["vocab"], merges__txt=LINES)
    return made


def cached(folder: Path) -> Path:
    """Where the user's cache has what is made of a folder's files."""
    source = find(folder)
    assert source is not None
    return folder.parent / "cache/penstock/tokenizers" / source.digest() / "tokenizer.json"


def test_the_cache_has_it_once_for_each_content(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = cached(folder)
    with caplog.at_level(logging.INFO):
        assert [tokenizer_of(folder) for _ in range(2)] == [path] * 2
    assert re.fullmatch(rf"Made {path} of vocab\.json in \d+\.\d s", "\n".join(caplog.messages))
    assert sorted(each.name for each in folder.iterdir()) == ["merges.txt", "vocab.json"]
    write(folder, tokenizer_config__json={"eos_token": "<|im_end|>"})
    assert tokenizer_of(folder) == cached(folder) != path


def test_it_is_made_once_beside_the_model_where_there_is_no_cache(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(NOWHERE))
    with caplog.at_level(logging.INFO):
        assert [tokenizer_of(folder) for _ in range(2)] == [folder / "tokenizer.json"] * 2
    assert re.fullmatch(rf"Made {folder}/tokenizer\.json of vocab\.json in \d+\.\d s", "\n".join(caplog.messages))
    assert sorted(path.name for path in folder.iterdir()) == ["merges.txt", "tokenizer.json", "vocab.json"]
    theirs = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode("def open(x):").ids == theirs.encode(
        "def open(x):").ids


def test_nowhere_to_write(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"`model_id`: tokenizer\.json cannot be written to /proc/nothing "
                                              r"\(No such file or directory\): give a folder that can be as XDG_CACHE"):
        place._make(folder, folder / "vocab.json", [NOWHERE / "tokenizer.json"])


def test_damaged_files_are_named_in_a_sentence(folder: Path) -> None:
    write(folder, merges__txt="no merge")
    with pytest.raises(InvalidArgument, match=rf"^`model_id`: {folder}/merges\.txt: expected two tokens [^\n]*$"):
        tokenizer_of(folder)
    assert not cached(folder).exists()


def test_a_folder_without_any_names_what_there_may_be(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"has no file tokenizer\.json, nor what one can be made of: tekken"
                                              r"\.json, tokenizer\.model, tiktoken\.model, \*\.tiktoken, or vocab"):
        tokenizer_of(tmp_path)
