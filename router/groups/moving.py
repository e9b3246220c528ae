"""Chooses the group of a request, one that has its prompt's beginning as long as that keeps the groups level, and moves
requests from a group that is lost, or is to be left, to others."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from penstock.router.engine.request import Request
from penstock.router.errors import RouterError
from penstock.router.groups.member import Member
from penstock.router.metrics.groups import GroupMetrics

log = logging.getLogger(__name__)

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


def move_requests(origin: Member, others: Sequence[Member], metrics: GroupMetrics) -> None:
    """Moves the requests of `origin` that may leave to those of the other groups that run steps and have the same
    weights, if there are any: to equal numerics first. Each goes on at its output position, by its age."""
    bits = origin.engine.facts.bits
    places = [each for each in others if each.is_open and each.has_weights(bits)]
    if not places:
        return
    moved: Counter[str] = Counter()
    for sequence_id, request in origin.engine.may_leave():
        fitting = [each for each in places if each.fits(most_tokens(request))]
        equal = [each for each in fitting if each.has_bits(bits)]
        if not equal and (request.needs_bits or not fitting):
            continue
        target = chosen(equal or fitting, request)
        transfer = origin.engine.release(sequence_id)
        metrics.moved(origin.cause, to_other_numerics=not equal)
        moved[target.name] += 1
        if not equal:
            log.warning("a request moves to group %s, whose numerics are other ones than group %s has: its answer may "
                        "differ from an undisturbed run", target.name, origin.name)
        transfer.receiver.note("moved", generated_tokens=transfer.num_tokens)
        try:
            target.engine.take(transfer)
        except RouterError as error:
            transfer.receiver.fail(error)
    if moved:
        log.info("requests of group %s go on elsewhere: %s", origin.name,
                 ", ".join(f"{number} in group {name}" for name, number in moved.items()))


def chosen(members: Sequence[Member], request: Request, metrics: GroupMetrics | None = None) -> Member:
    """Returns the group for a request; counts why it was chosen, if the request is a new one. Groups in which suspects
    are on trial, and which are likely to die again, are chosen only where there is no other."""
    quiet = [each for each in members if not each.engine.has_trial] or members
    if len(quiet) == 1:  # whose load need not be known, for which all of its sequences are counted
        if metrics is not None:
            metrics.chosen("only")
        return quiet[0]
    place, reason = choose([each.engine.load(request.is_background) for each in quiet], len(request.input_ids),
                           lambda place: quiet[place].engine.hit_tokens(request))
    if metrics is not None:
        metrics.chosen(reason)
    return quiet[place]


def most_tokens(request: Request) -> int:
    """Returns how many tokens prompt and answer may have together."""
    return len(request.input_ids) + request.max_new_tokens
