"""Finds where stop strings end an answer, be it in the middle of a token."""

from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Match:
    """A stop string in the text; `start` and `end` count from the start of the last piece.

    `start` is negative if the stop string began in an earlier piece.
    """

    stop: str
    end: int

    @property
    def start(self) -> int:
        """Where the stop string begins."""
        return self.end - len(self.stop)


class StopMatcher:
    """Looks for the first stop string that completes in a text that comes in pieces.

    Keeps nothing of the text but how much of each stop string it ends with, so a match may span any number of pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Takes the stop strings, none of which is empty."""
        self._candidates = [_Candidate(stop) for stop in stops]

    def fork(self) -> Self:
        """Returns one that goes on from here by itself. The tables of fallbacks, which no text changes, are shared."""
        fork = copy(self)
        fork._candidates = [copy(candidate) for candidate in self._candidates]
        return fork

    def push(self, piece: str) -> Match | None:
        """Returns the stop string that completes in `piece`; None while none does.

        Of several, the one that ends first counts, and the longest of those. After a match the matcher is spent.
        """
        found = [Match(candidate.stop, end) for candidate in self._candidates
                 if (end := candidate.push(piece)) is not None]
        return min(found, key=lambda match: (match.end, match.start), default=None)

    def skip(self, piece: str) -> None:
        """Takes a piece in which stop strings that complete there don't count."""
        for candidate in self._candidates:
            candidate.skip(piece)

    @property
    def num_held(self) -> int:
        """How many characters at the end of the text may be the beginning of a stop string."""
        return max((candidate.num_matched for candidate in self._candidates), default=0)


class _Candidate:
    """Follows how much of one stop string the text ends with (Knuth, Morris, Pratt 1977).

    The table of fallbacks grows as far as the text has matched, so a long stop string costs nothing in advance.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.num_matched = 0
        self._fallbacks = [0]
        """At n - 1: how many characters (fewer than n) at the end of the stop string's first n are again its first."""

    def push(self, piece: str) -> int | None:
        """Returns where in `piece` the stop string ends; None if it does not."""
        position = 0 if self.num_matched else piece.find(self.stop[0])
        if position < 0:
            return None
        for end in range(position + 1, len(piece) + 1):
            self.num_matched = self._extend(self.num_matched, piece[end - 1])
            if self.num_matched > len(self._fallbacks):
                self._fallbacks.append(self._extend(self._fallbacks[-1], self.stop[len(self._fallbacks)]))
            if self.num_matched == len(self.stop):
                return end
        return None

    def skip(self, piece: str) -> None:
        """Takes a piece and goes on behind each place where the stop string ends in it."""
        while (end := self.push(piece)) is not None:
            self.num_matched = self._fallbacks[-1]
            piece = piece[end:]

    def _extend(self, num_matched: int, character: str) -> int:
        while num_matched and self.stop[num_matched] != character:
            num_matched = self._fallbacks[num_matched - 1]
        return num_matched + (self.stop[num_matched] == character)


class HeldText:
    """Holds back the end of a text. Special tokens count as part of it, but their text is never given out."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[str, bool]] = deque()
        self._length = 0

    def push(self, piece: str, is_special: bool, num_kept: int) -> str:
        """Adds a piece and returns what lies before the last `num_kept` characters."""
        if piece:
            self._pieces.append((piece, is_special))
            self._length += len(piece)
        given = []
        while (surplus := self._length - num_kept) > 0:
            text, is_special = self._pieces.popleft()
            if len(text) > surplus:
                self._pieces.appendleft((text[surplus:], is_special))
                text = text[:surplus]
            self._length -= len(text)
            if not is_special:
                given.append(text)
        return "".join(given)

    def clear(self) -> None:
        """Drops the text that is held back."""
        self._pieces.clear()
        self._length = 0

    @property
    def text(self) -> str:
        """The text that is held, without special tokens."""
        return "".join(text for text, is_special in self._pieces if not is_special)
