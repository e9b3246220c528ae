"""Which group a request goes to: one that has its prompt's beginning, as long as that keeps the groups level."""

from collections.abc import Callable, Sequence
from typing import Literal

WINDOW = 0.4
"""By which part of the mean load the chosen group's may be above it. A prefix that all requests share is then computed
in every group, after the first have filled up to there, instead of all requests waiting for one group."""

Reason = Literal["prefix", "load", "only"]


def choose(loads: Sequence[float], num_tokens: int, hit_tokens: Callable[[int], int]) -> tuple[int, Reason]:
    """Returns the place of the chosen group, and why it was chosen, for a request whose prompt has `num_tokens`.

    `loads` say how much each group has to do, in tokens. Of those that have not far more to do than the mean, the group
    with the longest prefix hit is chosen, and of equals the one with the least load; a group that has less to do than
    the least and the request itself is always good enough. `hit_tokens` counts how many of the prompt's tokens a group
    has.
    """
    if len(loads) == 1:
        return 0, "only"
    limit = max((1 + WINDOW) * sum(loads) / len(loads), min(loads) + num_tokens)
    hits = {place: hit_tokens(place) for place, load in enumerate(loads) if load <= limit}
    best = max(hits, key=lambda place: (hits[place], -loads[place]))
    return best, "prefix" if hits[best] > 0 else "load"
