"""The requests that a plan is for."""

import random
from dataclasses import dataclass, replace

from penstock.bench.batching.drive import Request
from penstock.bench.batching.traffic import SHARE, draw_length

NOBODY_SHARES = 1 << 20
"""The distance of the token ids of two prompts, so that none has a prefix of another."""


@dataclass(frozen=True)
class Traffic:
    """Requests that arrive at random (a Poisson process), `rate` a second, or are sent by so many `clients`, each when
    its last one is answered. Prompts and answers have so many tokens, or on average if they are `varied`."""

    prompt: int
    answer: int
    rate: float = 0.0
    clients: int = 0
    number: int = 300
    varied: bool = False
    seed: int = 0

    def of_one(self, groups: int) -> "Traffic":
        """Returns the part of the traffic that one of so many groups has."""
        return replace(self, rate=self.rate / groups)

    @property
    def longest(self) -> int:
        """Returns the tokens of the longest prompt and answer together."""
        return (self.prompt + self.answer) * (SHARE if self.varied else 1)

    def requests(self) -> list[Request]:
        """Returns the requests in the order in which they come; those of clients come when they can."""
        arrivals, lengths, due, found = random.Random(self.seed), random.Random(self.seed), 0.0, []
        for number in range(self.number):
            prompt, answer = (draw_length(lengths, SHARE * mean) if self.varied else mean
                              for mean in (self.prompt, self.answer))
            first = number * NOBODY_SHARES
            found.append(Request(due, tuple(range(first, first + prompt)), answer, answer))
            due += arrivals.expovariate(self.rate) if self.rate else 0.0
        return found
