"""Files of tiktoken and tekken, against tiktoken and transformers."""

import base64
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from tokenizers import Tokenizer
from transformers.integrations.mistral.tokenizer import MistralConverter

from penstock.checkpoints.tokenizers import tiktoken as ours
from penstock.system.fields import FileError
from tests.checkpoints.tokenizers.texts import TEXTS, converted, decoded, demo_ranks, write

RANKS = demo_ranks()
COUNT = len(RANKS)
LINES = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in RANKS.items())
GLM4 = {"tokenizer_class": "ChatGLM4Tokenizer", "added_tokens_decoder": {
    str(COUNT + number): {"content": text, "special": True}
    for number, text in enumerate(["<|endoftext|>", "[gMASK]", "<sop>"])}}
KIMI = {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {
    str(COUNT + 2): {"content": "<|im_end|>", "special": True}}}
FILES: dict[str, tuple[str, dict[str, Any], str, list[str], dict[str, int]]] = {
    "qwen": ("qwen.tiktoken", {}, "QWenTokenizer", [], {"<|endoftext|>": 0, "<|im_end|>": 2, "<|extra_204|>": 207}),
    "hunyuan": ("hy.tiktoken", {}, "HYTokenizer", [], {"<|startoftext|>": 1, "<|eos|>": 3, "<|extra_0|>": 5}),
    "glm4": ("tokenizer.model", GLM4, "ChatGLM4Tokenizer", ["[gMASK]", "<sop>"], {"<|endoftext|>": 0}),
    "kimi": ("tiktoken.model", KIMI, "TikTokenTokenizer", [],
             {"<|im_end|>": 2, f"<|reserved_token_{COUNT + 255}|>": 255}),
    "llama3": ("tokenizer.model", {}, "", ["<|begin_of_text|>"],
               {"<|end_of_text|>": 1, "<|start_header_id|>": 6, "<|eot_id|>": 9,
                "<|reserved_special_token_250|>": 255}),
}
"""By family: its file, tokenizer_config.json, class, what goes before a text, and where some special tokens are."""


@pytest.mark.parametrize("name", FILES)
def test_ids_and_texts_are_tiktokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file, config, class_name, first, special = FILES[name]
    monkeypatch.setattr(ours, "LLAMA3_TOKENS", COUNT)
    write(tmp_path, **{file: LINES}, tokenizer_config__json=config)
    found = converted(tmp_path)
    family = ours.FAMILIES.get(class_name, ours.LLAMA3)
    known = {token.content: token_id for token_id, token in found.get_added_tokens_decoder().items()}
    theirs = tiktoken.Encoding(name, pat_str=family.pre.splits[0], mergeable_ranks=RANKS, special_tokens=known)
    texts = [unicodedata.normalize("NFC", text) for text in TEXTS] if family.pre.is_composed else TEXTS
    expected = [theirs.encode(text, allowed_special="all") for text in texts]
    assert [found.encode(text, add_special_tokens=False).ids for text in TEXTS] == expected
    assert [decoded(found, ids) for ids in expected] == [theirs.decode(ids) for ids in expected]
    assert {text: known[text] - COUNT for text in special} == special
    assert found.encode("a").tokens == [*first, "a"]


@pytest.mark.parametrize(("lines", "reason"), [
    (LINES, "expected 128000 tokens, as Llama 3 has them, or a tokenizer_class in tokenizer_config.json that is one "
            f"of QWenTokenizer, .*; found {COUNT} tokens and no tokenizer_class"),
    ("YQ== 0\nYg==\n", "expected a token in base64 and its rank as line 2, found b'Yg=='"),
    ("YQ== 0\n???? 1\n", "expected a token in base64 and its rank as line 2, found "),
    ("YQ== 0\nYQ== 1\n", "line 2: expected a token that no other line has, and a rank from 0 to 4194303, found"),
    ("YQ== 0\nYg== 99999999999\n", "line 2: expected a token that no other line has, and a rank from 0 to 4194303"),
    ("YQ== 0\nYg== 0\n", "expected lines of a token in base64 and its rank, which differ"),
])
def test_what_is_not_known_or_damaged_is_named(tmp_path: Path, lines: str, reason: str) -> None:
    write(tmp_path, tokenizer__model=lines)
    with pytest.raises(FileError, match=rf"tokenizer\.model: {reason}"):
        converted(tmp_path)


def tekken(**more: Any) -> dict[str, Any]:
    """A file with ten tokens more than the model has."""
    config = {"pattern": ours.PRE_TOKENIZERS["tekken"].splits[0], "num_vocab_tokens": COUNT, "version": "v13",
              "default_vocab_size": COUNT - 10 + 30, "default_num_special_tokens": 30}
    vocabulary = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
                  for token, rank in RANKS.items()]
    special = [{"rank": rank, "token_str": text, "is_control": True}
               for rank, text in enumerate(["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[THINK]", "<pad>"])]
    return {"config": config, "vocab": vocabulary, "special_tokens": special} | more


def test_tekken_is_transformers(tmp_path: Path) -> None:
    write(tmp_path, tekken__json=tekken())
    found: Tokenizer = converted(tmp_path)
    theirs = MistralConverter(str(tmp_path / "tekken.json")).converted()
    ids = [theirs.encode(text).ids for text in TEXTS]
    assert [found.encode(text).ids for text in TEXTS] == [[1, *each] for each in ids]
    assert [decoded(found, each) for each in ids] == [decoded(theirs, each) for each in ids]
    assert found.get_vocab() == theirs.get_vocab()


def test_tekken_without_special_tokens_has_those_of_its_first_release(tmp_path: Path) -> None:
    write(tmp_path, tekken__json=tekken(special_tokens=None))
    found = converted(tmp_path)
    assert [found.id_to_token(token_id) for token_id in (0, 3, 9, 19, 20)] == [
        "<unk>", "[INST]", "[TOOL_CALLS]", "[TOOL_CONTENT]", "<SPECIAL_20>"]


@pytest.mark.parametrize(("more", "reason"), [
    ({"config": []}, "expected an object `config`"),
    ({"config": {}}, "default_vocab_size: expected a whole number from 8 to 4194304, found no such key"),
    ({"vocab": []}, f"vocab: expected a list of at least {COUNT - 10} tokens"),
    ({"vocab": [{"token_bytes": "YQ=="}] * COUNT},
     "vocab: expected a token that no other item has, .* of item 1, found"),
    ({"special_tokens": [{"rank": 3}]}, "special_tokens: expected a list of objects with a `token_str` and a `rank`"),
])
def test_a_damaged_tekken_is_named(tmp_path: Path, more: dict[str, Any], reason: str) -> None:
    write(tmp_path, tekken__json=tekken(**more))
    with pytest.raises(FileError, match=rf"tekken\.json: {reason}"):
        converted(tmp_path)
