"""How much text a token can stand for."""

import unicodedata

import pytest
import tokenizers
from hypothesis import given, settings, strategies
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from penstock.router.text.token_size import most_bytes_of_a_token
from tests.router.text.tokenizers_for_tests import DEMO, byte_fallback_tokenizer


def demo(normalizer: object = None, pre_tokenizer: object = None) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer.from_file(str(DEMO))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


KNOWN = {
    "bytes": (demo(), 64),
    "composed": (demo(normalizers.NFC()), 4 * 64),
    "split": (demo(pre_tokenizer=pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\d{1,3}"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=True)])), 64),
    "fallback": (byte_fallback_tokenizer()._tokenizer, len("<0x00>")),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_most_is_known(name: str) -> None:
    tokenizer, most = KNOWN[name]
    assert most_bytes_of_a_token(tokenizer) == most


@pytest.mark.parametrize("name", KNOWN)
@settings(deadline=None)
@given(parts=strategies.lists(strategies.characters(codec="utf-8") | strategies.sampled_from(
    ["\u1fbe\u0308\u0301", "e\u0301", "  ", "<|im_end|>", "\u110b\u1161\u11ab", "aa", "\n", " " * 40])))
def test_no_token_stands_for_more(name: str, parts: list[str]) -> None:
    text = "".join(parts)
    tokenizer, most = KNOWN[name]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert len(ids) * most >= len(text.encode())


def stripping() -> tokenizers.Tokenizer:
    tokenizer = demo()
    tokenizer.add_special_tokens([AddedToken("<a>", rstrip=True, special=True)])
    return tokenizer


@pytest.mark.parametrize("tokenizer", [
    demo(normalizers.NFKC()), demo(normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])),
    demo(normalizers.Replace("  ", " ")), demo(normalizers.Replace(Regex(" +"), "▁▁▁")),
    demo(pre_tokenizer=pre_tokenizers.Whitespace()),
    demo(pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()])),
    stripping(), tokenizers.Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>")),
    tokenizers.Tokenizer(models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>", fuse_unk=True)),
    tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0)),
], ids=["NFKC", "strip", "shorter", "expression", "whitespace", "removed", "added", "words", "fused", "unigram"])
def test_tokenizers_that_may_drop_text_have_no_such_number(tokenizer: tokenizers.Tokenizer) -> None:
    assert most_bytes_of_a_token(tokenizer) is None


def test_nfc_makes_a_quarter_of_a_text_at_the_least() -> None:
    """Of every character that NFC may leave: the longest text that becomes it, of characters that each become a part of
    it. None is composed beyond those of these planes."""
    characters = [chr(code) for code in range(0x30000) if not 0xD800 <= code < 0xE000]
    apart = {character: unicodedata.normalize("NFD", character) for character in characters
             if not unicodedata.is_normalized("NFD", character)}
    longest: dict[str, int] = {}
    for character, parts in apart.items():
        if len(parts) == 1:
            longest[parts] = max(longest.get(parts, len(parts.encode())), len(character.encode()))
    most = {character: sum(longest.get(part, len(part.encode())) for part in parts)
            for character, parts in ({character: character for character in longest} | apart).items()}
    assert all(len(character.encode()) <= most[character] for character in most)
    assert max(most[character] / len(character.encode()) for character in most
               if unicodedata.normalize("NFC", character) == character) == 3.5
