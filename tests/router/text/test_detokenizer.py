"""Pieces are whole characters, and joined they are what decoding everything at once gives."""

import time

from hypothesis import given, settings, strategies

from penstock.router.text.detokenizer import Detokenizer
from penstock.router.text.encoding import encode
from penstock.router.text.tokenizer import Tokenizer
from tests.router.text.tokenizers_for_tests import FIRST_BYTE, byte_fallback_tokenizer, demo_tokenizer

TEXTS = strategies.text(strategies.characters(exclude_categories=["Cs"]))
# U+2581 is the mark of a space to this tokenizer, and comes back as one. After a special token, which begins with "<",
# it puts a space that the text had not.
FALLBACK_TEXTS = strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="▁<"))
DEMO_IDS = strategies.integers(0, 8191)
DEMO_BYTES = strategies.sampled_from(
    [token_id for token_id in range(8192) if demo_tokenizer().decode([token_id]) == "\ufffd"])
UNKNOWN_IDS = strategies.just(9000)


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(encode(tokenizer._tokenizer, text, False, None))


def pieces(tokenizer: Tokenizer, ids: list[int], context: list[int] | None = None) -> list[str]:
    detokenizer = Detokenizer(tokenizer.decode, context or [])
    return [detokenizer.push(token_id) for token_id in ids]


def is_all_but_tail(joined: str, full: str) -> bool:
    """Whether only U+FFFD is missing at the end, at most three."""
    return full.startswith(joined) and full[len(joined):] in ("", "\ufffd", "\ufffd" * 2, "\ufffd" * 3)


def assert_comes_out_whole(tokenizer: Tokenizer, prompt: str, answer: str) -> None:
    context, ids = ids_of(tokenizer, prompt), ids_of(tokenizer, answer)
    joined = "".join(pieces(tokenizer, ids, context))
    full = tokenizer.decode(context + ids).removeprefix(tokenizer.decode(context))
    assert full.strip() == answer.strip()
    assert is_all_but_tail(joined, full)


@settings(deadline=None)
@given(prompt=TEXTS, answer=TEXTS)
def test_any_text_of_a_byte_level_tokenizer_comes_out_whole(prompt: str, answer: str) -> None:
    assert_comes_out_whole(demo_tokenizer(), prompt, answer)


@settings(deadline=None)
@given(prompt=FALLBACK_TEXTS, answer=FALLBACK_TEXTS)
def test_any_text_of_a_byte_fallback_tokenizer_comes_out_whole(prompt: str, answer: str) -> None:
    assert_comes_out_whole(byte_fallback_tokenizer(), prompt, answer)


@settings(deadline=None)
@given(ids=strategies.lists(DEMO_IDS | DEMO_BYTES | UNKNOWN_IDS, max_size=80))
def test_any_ids_of_a_byte_level_tokenizer(ids: list[int]) -> None:
    tokenizer = demo_tokenizer()
    assert is_all_but_tail("".join(pieces(tokenizer, ids)), tokenizer.decode(ids))


@settings(deadline=None)
@given(ids=strategies.lists(DEMO_BYTES, min_size=20, max_size=80))
def test_endless_invalid_bytes(ids: list[int]) -> None:
    tokenizer = demo_tokenizer()
    detokenizer = Detokenizer(tokenizer.decode)
    joined = ""
    for count, token_id in enumerate(ids, 1):
        joined += detokenizer.push(token_id)
        assert is_all_but_tail(joined, tokenizer.decode(ids[:count]))
        assert len(detokenizer._window) <= 17


@settings(deadline=None)
@given(ids=strategies.lists(strategies.integers(1, 275) | strategies.sampled_from([0xC3, 0xA9, 0xE2, 0x82, 0xAC]).map(
    lambda byte: FIRST_BYTE + byte), max_size=80))
def test_any_ids_of_a_byte_fallback_tokenizer(ids: list[int]) -> None:
    """Its decoder voids a whole run of bytes for one that is invalid; what it does give must come out, in order."""
    tokenizer = byte_fallback_tokenizer()
    joined = "".join(pieces(tokenizer, ids))
    rest = iter(joined)
    assert all(character in rest for character in tokenizer.decode(ids).rstrip("\ufffd") if character != "\ufffd")


def test_a_character_waits_for_its_last_byte() -> None:
    tokenizer = demo_tokenizer()
    ids = ids_of(tokenizer, "😀")
    assert len(ids) == 4
    assert pieces(tokenizer, ids) == ["", "", "", "😀"]


def test_an_invalid_byte_comes_out_in_time() -> None:
    tokenizer = byte_fallback_tokenizer()
    invalid = FIRST_BYTE + 0xFF
    assert pieces(tokenizer, [invalid] * 5) == ["", "", "", "\ufffd", "\ufffd"]
    assert pieces(tokenizer, [invalid, *ids_of(tokenizer, "a")[-1:]])[-1].startswith("\ufffd")


def test_a_character_survives_the_invalid_byte_after_it() -> None:
    tokenizer = byte_fallback_tokenizer()
    ids = [FIRST_BYTE + byte for byte in (0xC3, 0xA9, 0xFF)] + ids_of(tokenizer, " a")
    assert "".join(pieces(tokenizer, ids)).replace(" ", "") == "é\ufffda"


def test_the_first_space_depends_on_the_prompt() -> None:
    tokenizer = byte_fallback_tokenizer()
    space_a = ids_of(tokenizer, "a")
    assert pieces(tokenizer, space_a, context=ids_of(tokenizer, "b")) == [" a"]
    assert pieces(tokenizer, space_a) == ["a"]


def test_cost_does_not_grow_with_the_answer() -> None:
    tokenizer = demo_tokenizer()
    detokenizer = Detokenizer(tokenizer.decode)
    ids = ids_of(tokenizer, "the quick brown fox jumps over the lazy dog, ééé 😀 ") * 400

    def run() -> float:
        start = time.process_time()
        for token_id in ids:
            detokenizer.push(token_id)
        return (time.process_time() - start) / len(ids)

    first = min(run() for _ in range(2))
    assert min(run() for _ in range(2)) < 3 * first
