"""Stop strings anywhere in a text that comes in pieces."""

from hypothesis import given, settings, strategies

from router.text.stopping import StopMatcher

LETTERS = strategies.text("ab", max_size=6)


def push_all(stops: list[str], pieces: list[str]) -> str | None:
    """The text up to the end of a stop string."""
    matcher = StopMatcher(stops)
    text = ""
    for piece in pieces:
        end = matcher.push(piece)
        if end is not None:
            return text + piece[:end]
        text += piece
    return None


def test_within_a_piece_and_across_pieces() -> None:
    assert push_all(["Pari"], ["Hello ", "Paris"]) == "Hello Pari"
    assert push_all(["end"], ["e", "n", "x", "en", "d."]) == "enxend"
    assert push_all(["aab"], ["a", "a", "a", "b"]) == "aaab"
    assert push_all(["x"], ["abc", ""]) is None
    assert push_all([], ["abc"]) is None


def test_the_one_that_ends_first_counts() -> None:
    assert push_all(["long stop", "g s"], ["a long stop"]) == "a long s"
    assert push_all(["c", "abcd"], ["ab", "cd"]) == "abc"


@settings(deadline=None)
@given(stops=strategies.lists(strategies.text("ab", min_size=1, max_size=4), max_size=4),
       pieces=strategies.lists(LETTERS, max_size=8))
def test_pieces_make_no_difference(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    prefixes = (text[:end] for end in range(len(text) + 1))
    expected = next((prefix for prefix in prefixes if prefix.endswith(tuple(stops))), None) if stops else None
    assert push_all(stops, pieces) == expected


@settings(deadline=None)
@given(stops=strategies.lists(strategies.text("ab", min_size=1, max_size=4), min_size=1, max_size=4),
       pieces=strategies.lists(LETTERS, max_size=30))
def test_memory_is_bounded_by_the_stop_strings(stops: list[str], pieces: list[str]) -> None:
    matcher = StopMatcher(stops)
    for piece in pieces:
        if matcher.push(piece) is not None:
            break
        assert len(matcher._tail) < max(map(len, stops))
