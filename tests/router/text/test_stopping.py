"""Stop strings anywhere in a text that comes in pieces."""

import pytest
from hypothesis import given, settings, strategies

from penstock.router.text.stopping import Match, StopMatcher

STOPS = strategies.lists(strategies.text("ab", min_size=1, max_size=6), max_size=4)
PIECES = strategies.lists(strategies.text("ab", max_size=6), max_size=10)


def push_all(stops: list[str], pieces: list[str]) -> tuple[str, str] | None:
    """The text before the stop string that completes first, and that stop string."""
    matcher = StopMatcher(stops)
    text = ""
    for piece in pieces:
        match = matcher.push(piece)
        if match is not None:
            start, end = len(text) + match.start, len(text) + match.end
            text += piece
            return text[:start], text[start:end]
        text += piece
    return None


def test_within_a_piece_and_across_pieces() -> None:
    assert push_all(["Pari"], ["Hello ", "Paris"]) == ("Hello ", "Pari")
    assert push_all(["end"], ["e", "n", "x", "en", "d."]) == ("enx", "end")
    assert push_all(["aab"], ["a", "a", "a", "b"]) == ("a", "aab")
    assert push_all(["x"], ["abc", ""]) is None
    assert push_all([], ["abc"]) is None


def test_places_count_from_the_last_piece() -> None:
    matcher = StopMatcher(["cde"])
    assert [matcher.push(piece) for piece in ("abc", "d", "ef")] == [None, None, Match("cde", end=1)]


def test_the_one_that_ends_first_counts() -> None:
    assert push_all(["long stop", "g s"], ["a long stop"]) == ("a lon", "g s")
    assert push_all(["c", "abcd"], ["ab", "cd"]) == ("ab", "c")


def test_the_longest_of_those_that_end_together_counts() -> None:
    for stops in (["bc", "abc", "c"], ["abc", "c", "bc"]):
        assert push_all(stops, ["xa", "bcd"]) == ("x", "abc")


@pytest.mark.parametrize(("text", "num_held"), [
    ("", 0), ("x", 0), ("xa", 1), ("aaa", 3), ("aaaa", 3), ("aaaab", 4), ("aaaaba", 5), ("aaaabaa", 6), ("aaabab", 0),
    ("axn", 1), ("ne", 2)])
def test_what_may_begin_a_stop_string_is_held(text: str, num_held: int) -> None:
    matcher = StopMatcher(["aaabaac", "nex"])
    assert matcher.push(text) is None
    assert matcher.num_held == num_held


@settings(deadline=None)
@given(stops=STOPS, pieces=PIECES)
def test_pieces_make_no_difference(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    ends = (text[:end] for end in range(1, len(text) + 1))
    expected = next(((prefix, max((stop for stop in stops if prefix.endswith(stop)), key=len))
                     for prefix in ends if prefix.endswith(tuple(stops))), None)
    found = push_all(stops, pieces)
    assert found == (expected and (expected[0].removesuffix(expected[1]), expected[1]))


@settings(deadline=None)
@given(stops=STOPS, pieces=PIECES)
def test_no_more_is_held_than_may_begin_a_stop_string(stops: list[str], pieces: list[str]) -> None:
    matcher, text = StopMatcher(stops), ""
    for piece in pieces:
        text += piece
        if matcher.push(piece) is not None:
            break
        beginnings = [stop[:length] for stop in stops for length in range(len(stop))]
        assert matcher.num_held == max((len(part) for part in beginnings if text.endswith(part)), default=0)


@pytest.mark.parametrize(("skipped", "pieces", "expected"), [
    (["a stop"], ["s", "top"], Match("stop", end=3)),
    (["a sto"], ["p"], Match("stop", end=1)),
    (["stopstop", "s"], ["to", "p"], Match("stop", end=1)),
    (["xaba"], ["ba"], Match("aba", end=2)),
])
def test_a_stop_string_that_completed_earlier_is_skipped(
    skipped: list[str], pieces: list[str], expected: Match,
) -> None:
    """But not one that began there, be it with the end of one that was skipped."""
    matcher = StopMatcher(["stop", "aba"])
    for piece in skipped:
        matcher.skip(piece)
    assert [matcher.push(piece) for piece in pieces] == [*[None] * (len(pieces) - 1), expected]


@settings(deadline=None)
@given(stops=STOPS, skipped=PIECES, pieces=PIECES)
def test_any_text_skipped(stops: list[str], skipped: list[str], pieces: list[str]) -> None:
    matcher, text = StopMatcher(stops), ""
    for piece in skipped:
        matcher.skip(piece)
        text += piece
        beginnings = [stop[:length] for stop in stops for length in range(len(stop))]
        assert matcher.num_held == max((len(part) for part in beginnings if text.endswith(part)), default=0)
    for piece in pieces:
        ends = [end for end in range(1, len(piece) + 1) if (text + piece[:end]).endswith(tuple(stops))]
        match = matcher.push(piece)
        assert (match and match.end) == (ends[0] if ends else None)
        if match is not None:
            break
        text += piece


def test_a_long_stop_string_costs_no_more_than_what_it_matches() -> None:
    matcher = StopMatcher(["ab" * 500_000])
    assert matcher.push("ab" * 1000 + "b") is None
    assert matcher.num_held == 0
    assert sum(len(candidate._fallbacks) for candidate in matcher._candidates) <= 2001
