"""Models that SentencePiece trains, against SentencePiece and transformers."""

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from transformers import LlamaTokenizer

from penstock.system.fields import FileError
from tests.checkpoints.tokenizers.texts import CORPUS, TEXTS, converted, decoded, write

PLAIN: dict[str, Any] = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
LLAMA = {"model_type": "bpe", "byte_fallback": True, "allow_whitespace_only_pieces": True, "split_digits": True} | PLAIN
GEMMA = LLAMA | {"add_dummy_prefix": False, "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3,
                 "user_defined_symbols": ["▁▁", "▁▁▁", "▁▁▁▁", "\n\n", "<start_of_turn>"]}
MODELS = {"llama": LLAMA, "gemma": GEMMA, "unigram": {"model_type": "unigram", "byte_fallback": True} | PLAIN,
          "bpe, NFKC": {"model_type": "bpe"}, "unigram, NFKC": {"model_type": "unigram"}}
COMBINING = range(0x300, 0x370)


def train(**options: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=600, hard_vocab_limit=False, minloglevel=2,
        **options)
    return model.getvalue()


@pytest.mark.parametrize("name", MODELS)
def test_ids_and_texts_are_sentencepieces(tmp_path: Path, name: str) -> None:
    model = train(**MODELS[name])
    write(tmp_path, tokenizer__model=model)
    ours, theirs = converted(tmp_path), sentencepiece.SentencePieceProcessor(model_proto=model)
    marks = ("<s>", "</s>", "<unk>", "<start_of_turn>")  # only ours finds these in texts
    texts = [text for text in TEXTS if not any(mark in text for mark in marks)
             and not ("NFKC" in name and any(ord(character) in COMBINING for character in text))]
    expected = [theirs.encode(text) for text in texts]
    assert [ours.encode(text, add_special_tokens=False).ids for text in texts] == expected
    unknown = theirs.unk_id()
    known = [ids for ids in expected if unknown not in ids]
    assert [decoded(ours, ids) for ids in known] == [theirs.decode(ids) for ids in known]
    assert ours.encode("a").ids == [theirs.bos_id(), *theirs.encode("a")]


@pytest.mark.parametrize("config", [
    {"legacy": False}, {"legacy": False, "add_prefix_space": False}, {"legacy": False, "add_bos_token": False,
                                                                      "add_eos_token": True},
    {"legacy": False, "added_tokens_decoder": {"700": {"content": "<|im_end|>", "special": True, "lstrip": False,
                                                       "rstrip": False, "normalized": False, "single_word": False}}},
], ids=["legacy", "no space", "the end", "added"])
def test_settings_are_transformers(tmp_path: Path, config: dict[str, Any]) -> None:
    write(tmp_path, tokenizer__model=train(**LLAMA),
          tokenizer_config__json={"tokenizer_class": "LlamaTokenizer", "add_bos_token": True} | config)
    ours, theirs = converted(tmp_path), LlamaTokenizer.from_pretrained(tmp_path)
    texts = [*TEXTS, "a</s> b<s>c", "a<|im_end|> b<|im_end|>c"]
    ids = [ours.encode(text).ids for text in texts]
    if "added_tokens_decoder" not in config:
        assert ids == [theirs(text)["input_ids"] for text in texts]
        assert [decoded(ours, each) for each in ids] == theirs.batch_decode(ids)
    else:
        assert ours.encode("a<|im_end|>").ids[-1] == 700


def test_a_space_goes_before_each_text_between_special_tokens_as_long_as_nothing_says_otherwise(tmp_path: Path) -> None:
    write(tmp_path, tokenizer__model=train(**LLAMA))
    assert converted(tmp_path).encode("a<s>a").tokens == ["<s>", "▁a", "<s>", "▁a"]


def test_an_added_token_takes_the_place_of_another(tmp_path: Path) -> None:
    """As in InternLM 2, where unused tokens became marks of conversations."""
    model = train(**LLAMA, user_defined_symbols=["[UNUSED_1]"])
    write(tmp_path, tokenizer__model=model, special_tokens_map__json={"pad_token": "<pad>"},
          tokenizer_config__json={"added_tokens_decoder": {"3": {"content": "<|im_start|>", "special": True}}})
    ours = converted(tmp_path)
    assert ours.token_to_id("<|im_start|>") == 3
    assert ours.token_to_id("[UNUSED_1]") is None
    count = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
    assert ours.token_to_id("<pad>") == count, "a token without an id gets the next"


@pytest.mark.parametrize(("content", "reason"), [
    (b"", "expected SentencePiece's model with tokens, found none"),
    (b"\xff" * 100, "expected SentencePiece's model, or lines of a token in base64 and its rank: Error parsing"),
    (b"\n\x04\n\x02\xff\xfe", "expected SentencePiece's model, or lines .* 'utf-8' codec can't decode"),
    (b"\n\x03\n\x01a\n\x03\n\x01a", "expected tokens that differ"),
    (b"\n\x03\n\x01a\x12\x02\x18\x03", r"trainer_spec\.model_type: expected 1 \(unigram\) or 2 \(BPE\), found 3"),
    (b"\n\x03\n\x01a\x12\x03\xc0\x02\x07", r"trainer_spec\.unk_id: expected the id of one of 1 tokens, found 7"),
], ids=["empty", "noise", "no UTF-8", "twice", "words", "unknown"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    write(tmp_path, tokenizer__model=content)
    with pytest.raises(FileError, match=rf"tokenizer\.model: {reason}"):
        converted(tmp_path)


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    write(tmp_path, tokenizer__model=train(**LLAMA)[:-20])
    with pytest.raises(FileError, match=r"tokenizer\.model: expected SentencePiece's model"):
        converted(tmp_path)
