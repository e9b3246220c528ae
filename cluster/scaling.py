"""How many groups there should be: pure, from what routers count."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.cluster.config import Scaling

WAITING, RUNNING = "tgi_queue_size", "tgi_batch_current_size"


@dataclass(frozen=True, slots=True)
class Load:
    """The load of all routers together."""

    num_waiting: int
    num_running: int


@dataclass(frozen=True, slots=True)
class Wish:
    """How many groups the load asked for at a time, in seconds."""

    time: float
    num_groups: int


def wished(load: Load, scaling: Scaling) -> int:
    """Returns how many groups a load asks for, within the bounds: so many that each has at most its share of the
    requests that wait, and of those that run."""
    wish = max(math.ceil(load.num_waiting / scaling.target_waiting),
               math.ceil(load.num_running / scaling.target_running))
    return min(max(wish, scaling.min_groups), scaling.max_groups)


def settled(wishes: Iterable[Wish], num_groups: int, now: float, scaling: Scaling) -> int:
    """Returns how many groups there should be, where there are `num_groups`: more than that once every wish of the
    upscale delay was for more, and fewer once every wish of the downscale delay was for fewer. Of several wishes it
    follows the one that changes least; none is known from before the first.
    """
    known = sorted(wishes, key=lambda wish: wish.time)
    num_groups = min(max(num_groups, scaling.min_groups), scaling.max_groups)
    for least_change, delay in ((min, scaling.upscale_delay), (max, scaling.downscale_delay)):
        span = [wish.num_groups for wish in known if wish.time >= now - delay]
        if not known or known[0].time > now - delay or not span:
            continue
        choice = least_change(span)
        if (choice > num_groups) if least_change is min else (choice < num_groups):
            return choice
    return num_groups


def recent(wishes: Iterable[Wish], now: float, scaling: Scaling) -> list[Wish]:
    """Returns the wishes that may still count: those of the longest delay, and the last one before it."""
    known = sorted(wishes, key=lambda wish: wish.time)
    start = now - max(scaling.upscale_delay, scaling.downscale_delay)
    num_older = sum(wish.time < start for wish in known)
    return known[max(0, num_older - 1):]


def load_of(text: str) -> Load | None:
    """Returns the load of a router, or None if its metrics do not have it."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in (WAITING, RUNNING):
            found[name] = float(value)
    if len(found) < 2:
        return None
    return Load(round(found[WAITING]), round(found[RUNNING]))
