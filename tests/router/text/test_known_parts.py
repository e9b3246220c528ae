"""Texts that share parts with earlier ones: their tokens are those that the whole text has, in every tokenizer."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import tokenizers
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from penstock.router.text import encoding
from penstock.router.text.known_parts import MOST_MARKS, MOST_PARTS, KnownParts
from penstock.router.text.tokenizer import MAX_SHORT, Tokenizer
from tests.router.text.tokenizers_for_tests import DEMO

LETTERS = " <>[]|ab▁\né"
CONTENTS = st.one_of(
    st.sampled_from(["<a>", "<b>", "</a>", "[A]", "[/A]", "<|x|>", "<|", "|>"]),
    st.text(LETTERS, min_size=1, max_size=4))
ADDED = st.builds(AddedToken, CONTENTS, single_word=st.booleans(), lstrip=st.booleans(), rstrip=st.booleans(),
                  normalized=st.booleans(), special=st.booleans())
PLAIN = st.builds(AddedToken, CONTENTS, normalized=st.just(False), rstrip=st.booleans(), special=st.booleans())
NORMALIZERS = st.sampled_from([
    None, normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(), normalizers.Prepend("▁"),
    normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])])
PRE_TOKENIZERS = st.sampled_from([
    None, pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.Metaspace(prepend_scheme="always"),
    pre_tokenizers.Metaspace(prepend_scheme="never"), pre_tokenizers.Whitespace(),
    pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.ByteLevel(add_prefix_space=False),
    pre_tokenizers.Split(" ", "merged_with_next")])


@contextmanager
def opened(inner: tokenizers.Tokenizer) -> Iterator[Tokenizer]:
    tokenizer = Tokenizer(inner)
    try:
        yield tokenizer
    finally:
        tokenizer.close()


@st.composite
def inner_tokenizers(draw: st.DrawFn) -> tokenizers.Tokenizer:
    """Draws a tokenizer of a few letters, whose added tokens overlap, contain one another, and take space."""
    words = ["<unk>", *LETTERS, *(chr(0x100 + number) for number in range(64)), "▁a", "ab", "<a", "a>", "><", "a▁"]
    ids = {word: number for number, word in enumerate(dict.fromkeys(words))}
    merges = [("▁", "a"), ("a", "b"), ("<", "a"), ("a", ">"), (">", "<"), ("a", "▁")]
    model = draw(st.sampled_from([
        models.BPE(ids, merges, unk_token="<unk>"), models.WordLevel(ids, unk_token="<unk>"),
        models.Unigram([(word, -float(len(word))) for word in ids], unk_id=0)]))
    inner = tokenizers.Tokenizer(model)
    inner.normalizer, inner.pre_tokenizer = draw(NORMALIZERS), draw(PRE_TOKENIZERS)
    inner.post_processor = draw(st.sampled_from(
        [None, TemplateProcessing(single="<unk> $A", special_tokens=[("<unk>", 0)])]))
    inner.add_tokens([*draw(st.lists(PLAIN, min_size=1, max_size=5)), *draw(st.lists(ADDED, max_size=3))])
    return inner


@settings(max_examples=80, deadline=None)
@given(inner_tokenizers(), st.data())
def test_the_tokens_are_those_of_the_whole_text(inner: tokenizers.Tokenizer, data: st.DataObject) -> None:
    contents = [token.content for token in inner.get_added_tokens_decoder().values()]
    pieces = st.lists(st.one_of(st.sampled_from(contents), st.text(LETTERS, max_size=4)), max_size=8).map("".join)
    texts = data.draw(st.lists(pieces, min_size=2, max_size=4))
    texts += [texts[0] + texts[-1], texts[-1] + texts[0]]

    async def encode_all(tokenizer: Tokenizer) -> None:
        for text in texts:
            try:
                expected = encoding.encode(inner, text, False, None)
            except BaseException as error:
                if type(error).__name__ == "PanicException":  # a fault of the package, which cuts amid a character
                    reject()
                raise
            assert await tokenizer.encode(text, add_special_tokens=False) == expected, text

    with opened(inner) as tokenizer:
        asyncio.run(encode_all(tokenizer))


def chat(*turns: str) -> str:
    return "".join(f"<|im_start|>user\n{turn}<|im_end|>\n" for turn in turns) + "<|im_start|>assistant\n"


async def test_a_turn_encodes_nothing_but_what_is_new() -> None:
    inner = tokenizers.Tokenizer.from_file(str(DEMO))
    with opened(inner) as tokenizer:
        turns = ["hello " * MAX_SHORT, "wörld"]
        await tokenizer.encode(chat(*turns), add_special_tokens=False)
        encoded: list[str] = []
        encode_each = tokenizer._encode_each
        tokenizer._encode_each = lambda texts: encoded.extend(texts) or encode_each(texts)  # type: ignore[func-returns-value, method-assign]
        for new in ("now", "and then"):
            turns.append(new)
            ids = await tokenizer.encode(chat(*turns), add_special_tokens=False)
            assert ids == encoding.encode(inner, chat(*turns), False, None)
        assert encoded == ["<|im_start|>user\nnow", "<|im_start|>user\nand then"]


@pytest.mark.parametrize(("other", "is_hidden"), [
    (AddedToken("x<", normalized=False), True), (AddedToken("x<a>y", normalized=False), True),
    (AddedToken("<a>y", normalized=True), True), (AddedToken("<", normalized=False), False),
    (AddedToken("<a", normalized=False), False), (AddedToken("a>x", normalized=False), False)])
def test_a_mark_is_a_token_that_no_other_hides(other: AddedToken, is_hidden: bool) -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    inner.add_tokens([AddedToken("<a>", normalized=False), other])
    marks, _ = KnownParts(inner).read("?<a>", encoding.encode(inner, "?<a>", False, None))
    assert ("<a>" in marks.values()) is not is_hidden


def test_memory_and_marks_are_bounded() -> None:
    inner = tokenizers.Tokenizer.from_file(str(DEMO))
    inner.add_tokens([AddedToken(f"<{number}>", normalized=False) for number in range(20)])
    known = KnownParts(inner, most_bytes=10_000)
    for number in range(20):
        text = f"<{number}>" + "a b c" * 20
        known.learn(*known.read(text, encoding.encode(inner, text, False, None)))
        assert known.get(known.cut(text)[0]) is not None
        assert len(known._marks) <= MOST_MARKS
        assert known._num_bytes <= 10_000
    assert 0 < len(known._parts) < 5


async def test_a_text_of_very_many_marks_is_not_cut() -> None:
    inner = tokenizers.Tokenizer.from_file(str(DEMO))
    known, text = KnownParts(inner), "<|im_end|>" * (MOST_PARTS + 1)
    known.learn(*known.read(text, encoding.encode(inner, text, False, None)))
    assert known._num_bytes == 0
    assert known.cut(text) == [text]
    with opened(inner) as tokenizer:
        for other in (text, "a" + text, text):
            ids = await tokenizer.encode(other, add_special_tokens=False)
            assert ids == encoding.encode(inner, other, False, None)
