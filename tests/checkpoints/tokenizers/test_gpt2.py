"""vocab.json with merges.txt, against transformers."""

from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2Tokenizer, Qwen2Tokenizer

from penstock.system.fields import FileError
from tests.checkpoints.tokenizers.texts import DEMO, MERGES, TEXTS, converted, decoded, write

LINES = "\n".join(["#version: 0.2", *MERGES, ""])
CONFIG = {"unk_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>",
          "additional_special_tokens": ["<|im_start|>"]}


@pytest.mark.parametrize(("tokenizer_class", "more"), [
    (GPT2Tokenizer, {}), (GPT2Tokenizer, {"add_prefix_space": True}), (Qwen2Tokenizer, {})])
def test_ids_and_texts_are_transformers(tmp_path: Path, tokenizer_class: Any, more: dict[str, Any]) -> None:
    write(tmp_path, vocab__json=DEMO["vocab"], merges__txt=LINES,
          tokenizer_config__json={"tokenizer_class": tokenizer_class.__name__} | CONFIG | more)
    ours, theirs = converted(tmp_path), tokenizer_class.from_pretrained(tmp_path)
    ids = [ours.encode(text).ids for text in TEXTS]
    assert ids == [theirs(text)["input_ids"] for text in TEXTS]
    assert [decoded(ours, each) for each in ids] == theirs.batch_decode(ids)
    assert ours.get_vocab() == theirs.get_vocab()


@pytest.mark.parametrize("decoder", [{}, {"added_tokens_decoder": {
    "8192": {"content": "<think>", "special": False}, "8193": {"content": "<pad>", "special": True}}}])
def test_added_tokens_are_special_where_transformers_has_them_so(tmp_path: Path, decoder: dict[str, Any]) -> None:
    write(tmp_path, vocab__json=DEMO["vocab"], merges__txt=LINES, added_tokens__json={"<think>": 8192, "<pad>": 8193},
          tokenizer_config__json={"tokenizer_class": "GPT2Tokenizer", "pad_token": "<pad>"} | CONFIG | decoder)
    theirs = GPT2Tokenizer.from_pretrained(tmp_path).added_tokens_decoder
    ours = converted(tmp_path).get_added_tokens_decoder()
    for token_id in (8192, 8193):
        assert (ours[token_id].content, ours[token_id].special) == (theirs[token_id].content, theirs[token_id].special)


def test_the_architecture_tells_how_texts_are_split_where_no_class_does(tmp_path: Path) -> None:
    write(tmp_path, vocab__json=DEMO["vocab"], merges__txt=LINES)
    assert len(converted(tmp_path).pre_tokenizer.pre_tokenize_str("123")) == 1
    write(tmp_path, config__json={"model_type": "qwen3"})
    assert len(converted(tmp_path).pre_tokenizer.pre_tokenize_str("123")) == 3


@pytest.mark.parametrize(("files", "reason"), [
    ({"merges__txt": "a\n"}, r"merges\.txt: expected two tokens that make a third, .* as line 1, found 'a'"),
    ({"merges__txt": "#version\nzz yy\n"}, r"merges\.txt: .* as line 2, found 'zz yy'"),
    ({"merges__txt": b"\xff"}, r"merges\.txt: expected UTF-8"),
    ({"vocab__json": "["}, r"vocab\.json: expected JSON: "),
    ({"vocab__json": "[" * 100_000}, r"vocab\.json: expected JSON: "),
    ({"vocab__json": []}, r"vocab\.json: expected a JSON object"),
    ({"vocab__json": {"a": 0, "b": 0}, "merges__txt": ""}, r"vocab\.json: expected tokens with ids that differ"),
    ({"vocab__json": {"a": 1e99}}, r"vocab\.json: 'a': expected an id from 0 to 4194303, found 1e\+99"),
    ({"tokenizer_config__json": {"tokenizer_class": "TokenizersBackend"}},
     r"tokenizer_config\.json: tokenizer_class: expected one of GPT2Tokenizer, .* found TokenizersBackend"),
    ({"tokenizer_config__json": {"eos_token": 3}}, r"tokenizer_config\.json: eos_token: expected a token: .* found 3"),
    ({"tokenizer_config__json": {"added_tokens_decoder": {"x": {}}}},
     r"added_tokens_decoder: expected ids of tokens as keys, found 'x'"),
    ({"tokenizer_config__json": {"added_tokens_decoder": {"999999999": "<x>"}}},
     "'<x>': expected an id from 0 to 4194303, found 999999999"),
    ({"added_tokens__json": {"<x>": "7"}}, r"added_tokens\.json: <x>: expected a whole number .* found '7'"),
    ({"tokenizer_config__json": {"add_bos_token": 1}}, "add_bos_token: expected true or false, found 1"),
])
def test_a_damaged_file_is_named(tmp_path: Path, files: dict[str, Any], reason: str) -> None:
    write(tmp_path, **{"vocab__json": DEMO["vocab"], "merges__txt": LINES} | files)
    with pytest.raises(FileError, match=reason):
        converted(tmp_path)
