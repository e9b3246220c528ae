"""How long a step of so many tokens takes, as far as steps have shown."""

from bisect import bisect_left
from itertools import accumulate

WEIGHT = 0.2
"""Of the newest step in its bucket."""
WEIGHT_OF_SHORTER = 0.5
"""Of a step that was shorter: what holds a step up is no part of what its tokens cost."""
UNKNOWN_SLOPE = 0.25
"""The time that one token more adds to a step, as a share of the time of each token in it, until a step has shown it.
"""
BOUNDS = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256,
          320, 384, 448, 512, 768, 1024, 2048, 4096]
"""The most tokens of each bucket: steps of about as many tokens take about as long."""


class StepCost:
    """Averages the times of steps in buckets by their tokens, and draws straight lines between them."""

    def __init__(self) -> None:
        self._tokens: list[float] = []
        self._seconds: list[float] = []
        self._buckets: list[int] = []
        self._least: list[float] = []
        """For each bucket the shortest time of it and of all larger ones."""

    @property
    def is_known(self) -> bool:
        """Whether a step has come back."""
        return bool(self._tokens)

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Takes in that a step of `num_tokens` took `seconds`."""
        bucket = bisect_left(BOUNDS, num_tokens)
        place = bisect_left(self._buckets, bucket)
        if place == len(self._buckets) or self._buckets[place] != bucket:
            self._buckets.insert(place, bucket)
            self._tokens.insert(place, num_tokens)
            self._seconds.insert(place, seconds)
        else:
            self._tokens[place] += WEIGHT * (num_tokens - self._tokens[place])
            weight = WEIGHT if seconds > self._seconds[place] else WEIGHT_OF_SHORTER
            self._seconds[place] += weight * (seconds - self._seconds[place])
        self._least = [*accumulate(reversed(self._seconds), min)][::-1]

    def seconds(self, num_tokens: float) -> float:
        """Returns how long a step of `num_tokens` would take, never longer than one of more tokens took. Below the
        smallest step that is known it is that one's time; beyond the largest, a token more costs UNKNOWN_SLOPE of one
        in it. While none has come back, the first token takes 1."""
        if not self._tokens:
            return 1.0 + UNKNOWN_SLOPE * (num_tokens - 1)
        place = bisect_left(self._tokens, num_tokens)
        if place == len(self._tokens):
            last, seconds = self._tokens[-1], self._seconds[-1]
            return seconds * (1.0 + UNKNOWN_SLOPE * (num_tokens - last) / last)
        if place == 0:
            return self._least[0]
        left, right = self._tokens[place - 1], self._tokens[place]
        low, high = self._least[place - 1], self._least[place]
        return low + (high - low) * (num_tokens - left) / (right - left)
