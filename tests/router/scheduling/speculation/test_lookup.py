"""What followed the last tokens before is found, and nothing else."""

import random

from penstock.router.scheduling.speculation.lookup import MAX_INDEXED, SHORT, Lookup


def grow(lookup: Lookup, tokens: list[int], *more: int) -> None:
    for token_id in more:
        tokens.append(token_id)
        lookup.note(token_id)


def test_what_followed_is_expected() -> None:
    tokens = [1, 2, 3, 4, 5, 6, 7, 8]
    lookup = Lookup(tokens)
    assert lookup.expected(3) == []
    grow(lookup, tokens, 3)
    assert lookup.expected(3) == []
    grow(lookup, tokens, 4)
    assert lookup.expected(3) == [5, 6, 7]
    grow(lookup, tokens, 5, 6)
    assert lookup.expected(2) == [7, 8]


def test_the_last_occurrence_counts_and_the_longer_match_before_it() -> None:
    tokens = [1, 2, 3, 4, 50, 9, 3, 4, 60, 8]
    lookup = Lookup(tokens)
    grow(lookup, tokens, 3, 4)
    assert lookup.expected(1) == [60]
    tokens = [1, 2, 3, 4, 50, 9, 3, 4, 60, 8]
    lookup = Lookup(tokens)
    grow(lookup, tokens, 1, 2, 3, 4)
    assert lookup.expected(1) == [50]


def test_a_repetition_goes_round() -> None:
    tokens = [1, 2, 3, 4, 7, 8, 9]
    lookup = Lookup(tokens)
    grow(lookup, tokens, 7, 8)
    assert lookup.expected(8) == [9, 7, 8, 9, 7, 8, 9, 7]
    tokens = [1, 2, 3, 4, 5]
    lookup = Lookup(tokens)
    grow(lookup, tokens, 5, 5)
    assert lookup.expected(3) == [5, 5, 5]


def test_an_edit_is_got_over() -> None:
    """After a token that differs the copy is found again as soon as two are as they were."""
    tokens = [*range(100, 140)]
    lookup = Lookup(tokens)
    grow(lookup, tokens, *range(100, 110), 7)
    assert lookup.expected(2) == []
    grow(lookup, tokens, 111, 112)
    assert lookup.expected(3) == [113, 114, 115]


def test_an_alternative_is_what_followed_last() -> None:
    """The copy goes on along the first text; the second one parts from it at 60."""
    tokens = [30, 31, *range(1, 10), 20, *range(2, 7), 60, 61, 62, 63, 21]
    lookup = Lookup(tokens)
    grow(lookup, tokens, 1, 2, 3)
    assert lookup.expected(6) == [4, 5, 6, 7, 8, 9]
    assert lookup.alternative(6) == (3, [60, 61, 62])
    assert lookup.alternative(3) is None
    for token_id in (4, 5, 6):
        tokens.append(token_id)
        assert lookup.note(token_id) is None
    assert lookup.alternative(2) == (0, [60, 61])
    tokens.append(60)
    assert lookup.note(60) == 60, "it would have been right"


def test_what_is_found_follows_the_same_tokens() -> None:
    """Against a search of all tokens, while the table grows and a prompt is taken in part by part."""
    draw = random.Random(1)
    tokens = [draw.randrange(12) for _ in range(3 * MAX_INDEXED)]
    lookup, num_found = Lookup(tokens), 0
    for _ in range(800):
        grow(lookup, tokens, draw.randrange(12))
        followers = {tokens[at + SHORT] for at in range(len(tokens) - SHORT)
                     if tokens[at:at + SHORT] == tokens[-SHORT:]}
        found = lookup.expected(1)
        assert set(found) <= followers
        num_found += bool(found)
    assert num_found > 600
