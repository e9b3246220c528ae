"""What transformers reads beside tokenizer.json: the oracle is its AutoTokenizer, whose ids are ours."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from penstock.checkpoints.snapshot import FILES, NOT_FILES
from penstock.checkpoints.tokenizers.conversion import convert
from penstock.checkpoints.tokenizers.place import lacks_tokens, tokenizer_of
from penstock.checkpoints.tokenizers.sources import find
from penstock.router.chat import files as chat_files
from tests.paths import DEMO_MODEL, ROOT

TEXTS = ("def open(path):", " hello  world<|im_end|>\n<new> x<tool>", "<|endoftext|>a <new> b", "self self")
BASE = json.loads((DEMO_MODEL / "tokenizer_config.json").read_text())
NEW = {"content": "<new>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "added_tokens_decoder": {"tokenizer_config": {"added_tokens_decoder": {"8192": NEW, "8193": NEW | {
        "content": "<tool>", "lstrip": True, "special": False}}}},
    "its order": {"tokenizer_config": {"added_tokens_decoder": {"8193": NEW, "8192": NEW | {"content": "<tool>"}}}},
    "additional_special_tokens": {"tokenizer_config": {"additional_special_tokens": ["<new>", "<|im_end|>"]}},
    "extra_special_tokens": {"tokenizer_config": {"extra_special_tokens": {"tool_token": "<tool>"}}},
    "a role": {"tokenizer_config": {"bos_token": "<new>"}},
    "a role of the vocabulary": {"tokenizer_config": {"pad_token": "self"}},
    "special_tokens_map and the decoder": {
        "special_tokens_map": {"eos_token": "<tool>"}, "tokenizer_config": {"added_tokens_decoder": {"8192": NEW}}},
    "special_tokens_map": {"special_tokens_map": {"additional_special_tokens": ["<new>"], "eos_token": "<tool>"}},
    "added_tokens": {"added_tokens": {"<new>": 8192, "<tool>": 8193}},
    "switches": {"tokenizer_config": {
        "add_bos_token": True, "add_eos_token": True, "add_prefix_space": True, "clean_up_tokenization_spaces": True,
        "do_lower_case": True, "model_max_length": 5, "truncation_side": "left", "padding_side": "left"}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "model"
    made.mkdir()
    shutil.copy(DEMO_MODEL / "tokenizer.json", made)
    (made / "tokenizer_config.json").write_text(json.dumps(BASE))
    return made


def write(folder: Path, **files: dict[str, Any]) -> None:
    for name, content in files.items():
        base = BASE if name == "tokenizer_config" else {}
        (folder / f"{name}.json").write_text(json.dumps(base | content))


def made_of(folder: Path) -> str:
    source = find(folder)
    assert source is not None
    return convert(source)


@pytest.mark.parametrize("case", CASES)
def test_ids_are_those_of_transformers(folder: Path, case: str) -> None:
    write(folder, **CASES[case])
    assert lacks_tokens(folder / "tokenizer.json") == (case not in ("nothing", "switches"))
    ours, theirs = Tokenizer.from_str(made_of(folder)), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        for adds in (True, False):
            ids = ours.encode(text, add_special_tokens=adds).ids
            assert ids == theirs.encode(text, add_special_tokens=adds), text
            assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids, skip_special_tokens=True)
    assert (folder / "tokenizer.json").read_bytes() == (DEMO_MODEL / "tokenizer.json").read_bytes()


def test_tokens_that_the_model_has_not_stay_texts(folder: Path) -> None:
    write(folder, config={"vocab_size": 8193}, added_tokens={"<new>": 8192, "<tool>": 8193})
    path = tokenizer_of(folder)
    assert path != folder / "tokenizer.json"
    ours = Tokenizer.from_file(str(path))
    assert ours.token_to_id("<new>") == 8192
    assert ours.token_to_id("<tool>") is None
    assert max(ours.encode(TEXTS[1]).ids) == 8192


@pytest.mark.parametrize(("name", "content"), [
    ("added_tokens", "["), ("tokenizer_config", '{"eos_token": 5}'), ("special_tokens_map", "[]")])
def test_files_that_make_no_sense_are_told(
    folder: Path, name: str, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / f"{name}.json").write_text(content)
    assert tokenizer_of(folder) == folder / "tokenizer.json"
    assert caplog.messages[0].startswith(
        f"{folder}/tokenizer.json is used as it is, without what the files beside it say: {folder}/{name}.json: ")


def test_where_nothing_can_be_written_it_is_used_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    write(folder, added_tokens={"<new>": 8192})
    with caplog.at_level(logging.WARNING):
        assert tokenizer_of(folder) == folder / "tokenizer.json"
    assert "lacks tokens that the files beside it name, and is used without them: " in caplog.text
    assert (folder / "tokenizer.json").read_bytes() == (DEMO_MODEL / "tokenizer.json").read_bytes()


OTHER_VOCABULARIES = {                   # of encoders, translators, speech, and of models that nothing here computes
    "artists.json", "bpe.codes", "byte_maps.json", "chinese.vocab", "dict.txt", "emoji.json", "entity_vocab.json",
    "genres.json", "lyrics.json", "monolingual_vocab_file", "normalizer.json", "prophetnet.tokenizer",
    "sentencepiece.bpe.model", "sentencepiece.model", "source.spm", "spiece.model", "spm.model", "spm_char.model",
    "target.spm", "target_vocab.json", "vocab-src.json", "vocab-tgt.json", "vocab.bpe", "vocab.txt",
    "word_pronunciation.json", "word_shape.json"}


def test_every_file_that_transformers_reads_for_a_tokenizer_is_known() -> None:
    """Each is read here, or belongs to tokenizers that have a tokenizer.json or none that is made here."""
    base = transformers.tokenization_utils_base
    own = {base.ADDED_TOKENS_FILE, base.SPECIAL_TOKENS_MAP_FILE, base.TOKENIZER_CONFIG_FILE, base.FULL_TOKENIZER_FILE,
           transformers.utils.CHAT_TEMPLATE_FILE}
    classes = {getattr(transformers, name, None) for name in TOKENIZER_MAPPING_NAMES.values() if name}
    vocabularies = {name for each in classes if isinstance(each, type) and issubclass(each, PreTrainedTokenizerBase)
                    for name in each.vocab_files_names.values()}
    sources = "".join((ROOT / path).read_text() for path in (
        "checkpoints/tokenizers/sources.py", "checkpoints/tokenizers/settings.py",
        "router/chat/files.py"))
    unread = {name for name in own | vocabularies if f'"{name}"' not in sources}
    assert unread <= OTHER_VOCABULARIES, unread - OTHER_VOCABULARIES
    assert {"*.json", "*.jinja", "tokenizer*", "merges.txt"} <= {*FILES}
    assert not {*own}.intersection(NOT_FILES)


def test_chat_templates_are_those_of_transformers(folder: Path) -> None:
    """In each place that it looks in, and in its order."""
    def templates() -> Any:
        found = AutoTokenizer.from_pretrained(folder).chat_template
        return found if isinstance(found, dict) else {chat_files.DEFAULT: found}

    write(folder, tokenizer_config={"chat_template": "of the configuration"})
    assert chat_files.read(folder).templates == templates() == {chat_files.DEFAULT: "of the configuration"}
    write(folder, tokenizer_config={"chat_template": [
        {"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]})
    assert chat_files.read(folder).templates == templates() == {"default": "a", "tool_use": "b"}
    (folder / "chat_template.jinja").write_text("of a file")
    assert chat_files.read(folder).templates == templates() == {chat_files.DEFAULT: "of a file"}
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("of another")
    assert chat_files.read(folder).templates == templates() == {chat_files.DEFAULT: "of a file", "rag": "of another"}
