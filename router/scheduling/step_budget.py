"""How many tokens a step may compute, so that one takes about as long as a stream may pause."""

TARGET_SECONDS = 0.25
"""The longest pause of the streams that are beside a long prompt. The shards measure their first guess for it, too."""
FLOOR = 64
"""Tokens: with fewer, the time of a step is that of reading the weights, and prompts are computed at a fraction of
the machine's speed."""
GRAIN = 16
WEIGHT = 0.25
"""The weight of the newest step, so that one that was held up changes little."""


class StepBudget:
    """Follows the speed of the machine, which was another when it was measured at the start: other replicas began
    beside this one, or a neighbour has ended. `tokens` lies between `least` and `most`, which may be equal.

    No answer depends on it, for no answer depends on how its prompt is cut.
    """

    def __init__(self, measured: int, least: int, most: int) -> None:
        assert 0 < least <= most
        self._least, self._most = least, most
        self._wanted = float(measured)

    @property
    def tokens(self) -> int:
        """The tokens of the next step at the most, beside which decode rows may need more."""
        return max(self._least, min(self._most, int(self._wanted) // GRAIN * GRAIN))

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Takes that a step of `num_tokens` took `seconds`. A step of less than half the budget tells nothing, since
        small steps take longer for each token."""
        if num_tokens * 2 < self.tokens:
            return
        now = self.tokens
        fitting = num_tokens * TARGET_SECONDS / max(seconds, 1e-6)
        self._wanted = now + WEIGHT * (min(fitting, 2.0 * self._most) - now)
