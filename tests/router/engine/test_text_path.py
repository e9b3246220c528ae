"""From token ids to pieces of text, with stop strings kept or cut, over tokens of any text."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given, settings, strategies

from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.engine.text_path import Piece, TextPath
from penstock.router.text.encoding import encode
from penstock.router.text.tokenizer import Tokenizer
from tests.router.text.tokenizers_for_tests import demo_tokenizer


class Script(Tokenizer):
    """The token i has the text `texts[i]`; its texts begin with `<` if it is special."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._texts[token_id] for token_id in ids)

    def is_special(self, token_id: int) -> bool:
        return self._texts[token_id].startswith("<")


def push_all(
    texts: Sequence[str], stops: Sequence[str], keep_stop: bool, min_tokens: int = 0,
) -> tuple[list[Piece], TextPath]:
    """The pieces up to a stop string, or all."""
    sampling = Sampling(min_tokens=min_tokens)
    request = Request((), sampling, max_new_tokens=1, stop=tuple(stops), keep_stop=keep_stop)
    path, pieces = TextPath(Script(texts), request), []
    for token_id in range(len(texts)):
        pieces.append(path.push(token_id))
        if pieces[-1].stop is not None:
            break
    return pieces, path


def texts_of(pieces: list[Piece]) -> list[str]:
    return [piece.text for piece in pieces]


def test_a_stop_string_is_kept() -> None:
    pieces, path = push_all(["one ", "st", "<s>", "op here"], ["stop", "s><", "<s>op"], keep_stop=True)
    assert texts_of(pieces) == ["one ", "st", "<s>", "op"]
    assert path.text == "one stop"


@pytest.mark.parametrize(("texts", "stops", "given_texts", "text"), [
    (["one ", "st", "op here"], ["stop"], ["one ", "", ""], "one "),
    (["one ", "st", "ep", "s"], ["stop"], ["one ", "", "step", ""], "one steps"),
    (["one ", "st"], ["stop"], ["one ", ""], "one st"),
    (["a", "a", "a", "b"], ["aab"], ["", "", "a", ""], "a"),
    (["a<", "<s>", "b", "c"], ["<<s>d"], ["a", "", "<b", "c"], "a<bc"),
    (["a", "<s>", "b", "c"], ["<s>bc"], ["a", "", "", ""], "a"),
    (["a", "<s>", "b"], ["<s>"], ["a", ""], "a"),
    (["a", "<s>", "b"], [], ["a", "", "b"], "ab"),
])
def test_a_stop_string_is_cut(texts: list[str], stops: list[str], given_texts: list[str], text: str) -> None:
    pieces, path = push_all(texts, stops, keep_stop=False)
    assert (texts_of(pieces), path.text) == (given_texts, text)


@pytest.mark.parametrize(("min_tokens", "num_pieces"), [(0, 2), (1, 2), (2, 4), (3, 4), (4, 6)])
@pytest.mark.parametrize("keep_stop", [True, False])
def test_no_stop_string_in_the_first_tokens(keep_stop: bool, min_tokens: int, num_pieces: int) -> None:
    """What was no end is given like any other text; a stop string may begin before the last of these tokens."""
    texts = ["a ", "stop", " b st", "op", " c", " stop"]
    pieces, path = push_all(texts, ["stop"], keep_stop, min_tokens)
    assert (len(pieces), pieces[-1].stop) == (num_pieces, "stop")
    given_text = "".join(texts[:num_pieces])
    assert path.text == "".join(texts_of(pieces)) == (given_text if keep_stop else given_text.removesuffix("stop"))


TEXTS = strategies.lists(strategies.text("ab", max_size=4) | strategies.just("<b"), max_size=12)
STOPS = strategies.lists(strategies.text("ab<", min_size=1, max_size=5), max_size=4)


def without_specials(texts: Sequence[str], length: int) -> str:
    """The first `length` characters, less those of special tokens."""
    starts = accumulate(map(len, texts), initial=0)
    return "".join(text[:max(0, length - start)] for text, start in zip(texts, starts, strict=False)
                   if not text.startswith("<"))


def find_first(text: str, stops: Sequence[str]) -> tuple[int, int]:
    """Where the first stop string to end, the longest of those, starts and ends; the text's end twice if none does."""
    found = [(start + len(stop), start) for stop in stops if (start := text.find(stop)) >= 0]
    end, start = min(found, default=(len(text), len(text)))
    return start, end


@settings(deadline=None)
@given(texts=TEXTS, stops=STOPS)
def test_any_text_kept(texts: list[str], stops: list[str]) -> None:
    pieces, path = push_all(texts, stops, keep_stop=True)
    _, end = find_first("".join(texts), stops)
    assert path.text == without_specials(texts, end)
    assert "".join(texts_of(pieces)) == "".join(texts)[:end]


@settings(deadline=None)
@given(texts=TEXTS, stops=STOPS)
def test_any_text_cut(texts: list[str], stops: list[str]) -> None:
    pieces, path = push_all(texts, stops, keep_stop=False)
    start, _ = find_first("".join(texts), stops)
    answer = without_specials(texts, start)
    assert path.text == answer
    given_lengths = list(accumulate(len(piece.text) for piece in pieces))
    assert answer.startswith("".join(texts_of(pieces)))
    longest = max(map(len, stops), default=1)
    for index, length in enumerate(given_lengths):
        seen = without_specials(texts, min(start, sum(map(len, texts[:index + 1]))))
        assert len(seen) - length < longest, "more is held than a stop string may begin with"


def test_held_text_and_incomplete_characters() -> None:
    tokenizer = demo_tokenizer()
    ids = encode(tokenizer._tokenizer, "so 😀 it is", False, None)
    request = Request((), Sampling(), max_new_tokens=1, stop=("😀 it was",), keep_stop=False)
    path = TextPath(tokenizer, request)
    given_texts = [path.push(token_id).text for token_id in ids]
    assert "".join(given_texts) == path.text == "so 😀 it is"
    assert not any("\ufffd" in text for text in given_texts)


@pytest.mark.parametrize("keep_stop", [True, False])
def test_a_special_token_that_is_shown(keep_stop: bool) -> None:
    texts = ["a", "<b>", " c", "<d>"]
    request = Request((), Sampling(), max_new_tokens=4, stop=("c<e>",), keep_stop=keep_stop, shown_ids=frozenset({1}))
    path = TextPath(Script(texts), request)
    pieces = [path.push(token_id) for token_id in range(len(texts))]
    assert path.text == "a<b> c"
    assert [piece.is_special for piece in pieces] == [False, False, False, True]
    assert "".join(texts_of(pieces[:3])) == ("a<b> c" if keep_stop else "a<b> ")


@pytest.mark.parametrize(("keep_stop", "last", "text"), [(False, "", "one st"), (True, "op", "one stop")])
def test_a_token_that_stops(keep_stop: bool, last: str, text: str) -> None:
    texts = ["one ", "st", "op here"]
    request = Request((), Sampling(), max_new_tokens=3, stop=("stop",), keep_stop=keep_stop,
                      stop_token_ids=frozenset({2}))
    path = TextPath(Script(texts), request)
    pieces = [path.push(token_id) for token_id in range(len(texts))]
    assert (pieces[-1].text, path.text) == (last, text)
    assert pieces[-1].stop == ("stop" if keep_stop else None)
