"""The bytes of tokens, against what llguidance reads itself."""

import json
from pathlib import Path

import pytest
from llguidance import LLTokenizer
from tokenizers import Tokenizer, decoders, models

from penstock.router.grammar.vocabulary import load
from tests.gguf_files import FOLDER
from tests.paths import DEMO_MODEL

TOKENIZERS = [DEMO_MODEL / "tokenizer.json", *sorted(FOLDER.glob("*.json"))]
ADDED = {"<|a|>": True, "<b>": False, "plain!": False, "éa": False, "▁x y": False, "日本": False, "special!": True}


@pytest.mark.parametrize("path", TOKENIZERS, ids=lambda path: path.stem)
def test_tokens_are_what_llguidance_reads(tmp_path: Path, path: Path) -> None:
    tokenizer = json.loads(path.read_text())
    first = 1 + max([*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])])
    tokenizer["added_tokens"] += [
        {"id": token_id, "content": text, "special": is_special, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False} for token_id, (text, is_special) in enumerate(ADDED.items(), start=first)]
    text = json.dumps(tokenizer)
    (tmp_path / "tokenizer.json").write_text(text)
    size, ends = first + len(ADDED) + 40, [1, 2]
    ours, _ = load(tmp_path / "tokenizer.json", size, ends)
    theirs = LLTokenizer(text, n_vocab=size, eos_token=ends)
    for token_id in range(size):
        assert ours.decode_bytes([token_id]) == theirs.decode_bytes([token_id])
        assert ours.is_special_token(token_id) == theirs.is_special_token(token_id)
    assert (ours.vocab_size, ours.eos_tokens) == (theirs.vocab_size, theirs.eos_tokens)


def test_byte_tokens_beside_a_mark_for_spaces(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0), ("<0x0A>", -2.0)], unk_id=0))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ours, _ = load(tmp_path / "tokenizer.json", 3, [0])
    assert [ours.decode_bytes([token_id]) for token_id in (1, 2)] == [b" a", b"\n"]


def test_unigram_tokens_whose_decoder_knows_no_bytes(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0), ("é", -2.0)], unk_id=0))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ours, _ = load(tmp_path / "tokenizer.json", 3, [0])
    assert [ours.decode_bytes([token_id]) for token_id in (1, 2)] == [b" a", "é".encode()]
