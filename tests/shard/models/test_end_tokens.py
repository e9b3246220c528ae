"""The tokens that end an answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from penstock.shard.models.end_tokens import end_tokens, named_end_tokens
from penstock.shard.models.keys import Keys, ModelConfigError
from penstock.shard.models.reading import read_model_config
from tests.family_models import make_family
from tests.paths import DEMO_MODEL

VOCAB = 100


def keys_of(folder: Path, config: dict[str, Any], **files: Any) -> Keys:
    for name, content in {"config": config, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return Keys.read(folder / "config.json")


@pytest.mark.parametrize(("named", "possible"), [
    (2, (2,)), ([2, 3], (2, 3)), ([2, 3, 2], (2, 3)), (99, (99,)), (None, ()), ([], ()),
    (100, ()), (2**40, ()), (-1, ()), ([-1, 2, 100, 151645], (2,)),
])
@pytest.mark.parametrize("is_in_generation", [False, True])
def test_ids_that_cannot_be_generated_are_left_out(
    tmp_path: Path, named: Any, possible: tuple[int, ...], is_in_generation: bool
) -> None:
    keys = keys_of(tmp_path, {"eos_token_id": None if is_in_generation else named},
                   generation_config={"eos_token_id": named} if is_in_generation else {})
    assert end_tokens(keys, VOCAB) == possible


def test_generation_config_goes_before_config(tmp_path: Path) -> None:
    assert end_tokens(keys_of(tmp_path, {"eos_token_id": 2}, generation_config={"eos_token_id": [5, 6]}), VOCAB) == (
        5, 6)
    assert end_tokens(keys_of(tmp_path, {"eos_token_id": 2}, generation_config={"eos_token_id": None}), VOCAB) == (2,)


@pytest.mark.parametrize("token", ["<end>", {"content": "<end>", "lstrip": False}])
@pytest.mark.parametrize("files", [
    {"tokenizer": {"version": "1.0", "added_tokens": [{"id": 7, "content": "<end>"}], "model": {"vocab": {}}}},
    {"tokenizer": {"version": "1.0", "added_tokens": [{"id": 6, "content": "<x>"}, {"id": 7, "content": "<end>"}]}},
    {"tokenizer": {}, "decoder": {"7": {"content": "<end>"}}},
])
def test_the_tokenizers_end_token_is_one(tmp_path: Path, token: Any, files: dict[str, Any]) -> None:
    """As in TGI and vLLM, in whose chats a fine-tuned model's config.json often names the base's token."""
    listed = {"added_tokens_decoder": files["decoder"]} if "decoder" in files else {}
    keys = keys_of(tmp_path, {"eos_token_id": 2}, tokenizer_config={"eos_token": token, **listed}, **{
        name: content for name, content in files.items() if name != "decoder"})
    assert end_tokens(keys, VOCAB) == (2, 7)
    assert end_tokens(keys, 7) == (2,)


def test_special_tokens_map_names_it_too(tmp_path: Path) -> None:
    added = {"added_tokens": [{"id": 7, "content": "<end>"}, {"id": 8, "content": "<x>"}]}
    special: dict[str, Any] = {"eos_token": {"content": "<end>"}}
    keys = keys_of(tmp_path, {"eos_token_id": None}, special_tokens_map=special, tokenizer=added)
    assert end_tokens(keys, VOCAB) == (7,)
    keys = keys_of(tmp_path, {"eos_token_id": None}, tokenizer_config={"eos_token": "<x>"})
    assert end_tokens(keys, VOCAB) == (7,)
    keys = keys_of(tmp_path, {"eos_token_id": None}, tokenizer_config={
        "eos_token": "<x>", "added_tokens_decoder": {"8": {"content": "<x>"}}})
    assert end_tokens(keys, VOCAB) == (8,)


@pytest.mark.parametrize("files", [
    {"tokenizer_config": []}, {"tokenizer_config": {"eos_token": 5}}, {"tokenizer_config": {"eos_token": "<end>"}},
    {"tokenizer_config": {"eos_token": "<end>", "added_tokens_decoder": {"x": {"content": "<end>"}}}},
    {"tokenizer_config": {"eos_token": "<end>", "added_tokens_decoder": [7]}},
    {"tokenizer_config": {"eos_token": "<end>"}, "tokenizer": {"added_tokens": {"id": 7}}},
    {"tokenizer_config": {"eos_token": "<end>"}, "tokenizer": {"added_tokens": [7]}},
])
def test_tokenizers_files_that_make_no_sense_name_none(tmp_path: Path, files: dict[str, Any]) -> None:
    assert end_tokens(keys_of(tmp_path, {"eos_token_id": 2}, **files), VOCAB) == (2,)


def test_what_an_absent_key_says_ends_answers_where_no_file_names_a_token(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, {}).defaulting({"eos_token_id": 5})
    assert end_tokens(keys, VOCAB) == (5,)
    assert end_tokens(keys, 5) == ()
    keys = keys_of(tmp_path, {}, special_tokens_map={"eos_token": "<end>"}, tokenizer={
        "added_tokens": [{"id": 7, "content": "<end>"}]}).defaulting({"eos_token_id": 5})
    assert end_tokens(keys, VOCAB) == (7,)
    assert end_tokens(keys_of(tmp_path, {"eos_token_id": None}).defaulting({"eos_token_id": 5}), VOCAB) == (7,)


@pytest.mark.parametrize("value", ["x", "2", 2.0, True, [[1]], {"a": 1}, [None]])
def test_what_is_no_id_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ModelConfigError, match=r"config.json: eos_token_id: expected a token id, a list of them,"):
        named_end_tokens(keys_of(tmp_path, {"eos_token_id": value}))


def test_the_demo_models_is_that_of_transformers_tokenizer() -> None:
    tokenizer = AutoTokenizer.from_pretrained(DEMO_MODEL)
    assert read_model_config(DEMO_MODEL).eos_token_ids == (tokenizer.eos_token_id,)


def test_a_model_with_impossible_ones_is_read(tmp_path: Path) -> None:
    model = make_family(tmp_path / "model", "llama", eos_token_id=[-1, 2, 160])
    assert read_model_config(model).eos_token_ids == (2,)
