"""How long steps take by the clock, and how far off estimates of it were."""

from collections.abc import Callable

from penstock.router.scheduling.speculation.step_cost import StepCost
from penstock.router.scheduling.step_budget import TARGET_SECONDS

HALF_LIFE = 30.0
"""After how many seconds half of what held steps up, or made estimates wrong, is forgotten."""
MARGIN = 1.25
"""By which factor estimates are taken to be too short, beside what has shown."""
FIRST_STEPS = 64
"""The margin is twice as much at first, and falls until so many steps have shown their time."""
MOST_BIAS = 4.0
RISE, FALL = 0.3, 0.05
"""The weights of an answer that took longer than was estimated, and of one that took less: so most take less."""
LEAST_PART = 8
"""Until a step has shown its time: the part of the time of the largest step that the smallest takes, as a divisor."""


class Pace:
    """Learns from the time between results, in which is all that steps wait for, too. `step_tokens` are as many as a
    step computes in TARGET_SECONDS by the shards' own measure, of which nothing else is known at first."""

    def __init__(self, clock: Callable[[], float], step_tokens: int) -> None:
        self._clock = clock
        self._step_tokens = step_tokens
        self._cost = StepCost()
        self._since = self._faded_at = clock()
        self._bias, self._pause = 1.0, 0.0
        self._num_steps = 0

    @property
    def is_known(self) -> bool:
        """Whether a step has come back."""
        return self._cost.is_known

    def now(self) -> float:
        """Returns the time."""
        return self._clock()

    def begin(self) -> None:
        """Takes in that a step is sent while none is in flight."""
        self._since = self._clock()

    def observe(self, num_tokens: int) -> None:
        """Takes in that the oldest step in flight, of so many tokens, has come back."""
        now = self._clock()
        seconds, self._since = now - self._since, now
        if self._cost.is_known:
            held_up = seconds - MARGIN * self._cost.seconds(num_tokens)
            if held_up > self._pause:
                self._fade()
                self._pause = max(self._pause, held_up)
        self._cost.observe(num_tokens, seconds)
        self._num_steps += 1

    def seconds(self, num_tokens: float) -> float:
        """Returns how long a step of so many tokens takes, on average."""
        if not self._cost.is_known:
            return TARGET_SECONDS * max(num_tokens / self._step_tokens, 1 / LEAST_PART)
        return self._cost.seconds(num_tokens)

    def answered(self, expected: float, took: float) -> None:
        """Takes in that an answer that was to take so many seconds took others."""
        self._fade()
        ratio = took / max(expected, 1e-6)
        self._bias += (RISE if ratio > self._bias else FALL) * (min(ratio, MOST_BIAS) - self._bias)
        self._bias = max(1.0, self._bias)

    @property
    def margin(self) -> float:
        """By which factor estimates are to be longer for new promises."""
        return self.bias * MARGIN * (1.0 + max(0.0, 1.0 - self._num_steps / FIRST_STEPS))

    @property
    def bias(self) -> float:
        """By which factor estimates were too short lately."""
        self._fade()
        return self._bias

    @property
    def pause(self) -> float:
        """For how many seconds a step was held up lately."""
        self._fade()
        return self._pause

    def _fade(self) -> None:
        now = self._clock()
        kept = 0.5 ** ((now - self._faded_at) / HALF_LIFE)
        self._faded_at = now
        self._bias = 1.0 + kept * (self._bias - 1.0)
        self._pause *= kept
