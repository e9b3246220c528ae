"""How many groups some traffic needs, and what they cost."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.bench.planning.costs import StepCost, decode_work, prompt_work
from penstock.bench.planning.fits import Fit
from penstock.bench.planning.model_size import BLOCK_SIZE
from penstock.bench.planning.simulation import Outcome, Room, Simulation
from penstock.bench.planning.traffic import Traffic

MOST_GROUPS = 4096
LIFETIMES = 4
"""For how many times the longest that an answer may take traffic is simulated at least, so that it settles."""


@dataclass(frozen=True)
class Way:
    """A kind of group on a kind of machine, and the cost of its steps."""

    fit: Fit
    cost: StepCost


@dataclass(frozen=True)
class Target:
    """The time to the first token, in seconds, that `percent` of the requests are to meet."""

    first_token: float
    percent: float

    def is_met(self, outcome: Outcome) -> bool:
        return outcome.keeps_up and outcome.first_token(self.percent) <= self.first_token


@dataclass(frozen=True)
class Choice:
    """The fewest groups of a kind that meet the target, and one group's part of the traffic."""

    way: Way
    groups: int
    outcome: Outcome

    @property
    def machines(self) -> int:
        return math.ceil(self.groups / self.way.fit.groups)

    @property
    def price(self) -> float:
        """Returns the dollars an hour of all machines."""
        return self.machines * self.way.fit.machine.price

    @property
    def monthly(self) -> float:
        return self.machines * self.way.fit.machine.monthly

    def per_million(self, traffic: Traffic, counts_prompts: bool = False) -> float:
        """Returns the dollars for a million tokens of answers, or of prompts and answers."""
        tokens = traffic.answer + traffic.prompt * counts_prompts
        return 1e6 * self.price / (3600 * traffic.rate * tokens)


def choose(way: Way, traffic: Traffic, target: Target, slots: int) -> Choice | None:
    """Returns how many groups of a kind the traffic needs; None if no number of them meets the target."""
    found = fewest_groups(traffic, target, Room(slots, way.fit.kv_tokens, BLOCK_SIZE), way.cost)
    return None if found is None else Choice(way, *found)


def fewest_groups(traffic: Traffic, target: Target, room: Room, cost: StepCost) -> tuple[int, Outcome] | None:
    """Returns the fewest groups that meet a target, and the outcome of one of them. Each is given its part of the
    traffic as it comes: a router that sends requests to the least busy group does no worse."""
    if traffic.longest > room.kv_tokens or cost.seconds(prompt_work(traffic.prompt)) > target.first_token:
        return None

    together, step = full_steps(traffic, room, cost)
    longest = cost.seconds(prompt_work(traffic.prompt)) + traffic.answer * step

    def run(groups: int) -> Outcome:
        part = traffic.of_one(groups)
        number = min(math.ceil(LIFETIMES * part.rate * longest), LIFETIMES * together)
        return Simulation(replace(part, number=max(part.number, number)), room, cost).run()

    groups = least_groups(traffic, room, cost)
    failing = groups - 1
    while not target.is_met(outcome := run(groups)):
        failing, groups = groups, max(groups + 1, groups * 5 // 4)
        if groups > MOST_GROUPS:
            return None
    return _bisect(run, target, failing, groups, outcome)


def _bisect(
    run: Callable[[int], Outcome], target: Target, failing: int, meeting: int, outcome: Outcome
) -> tuple[int, Outcome]:
    while meeting - failing > 1:
        middle = (failing + meeting) // 2
        if target.is_met(found := run(middle)):
            meeting, outcome = middle, found
        else:
            failing = middle
    return meeting, outcome


def least_groups(traffic: Traffic, room: Room, cost: StepCost) -> int:
    """Returns how many groups compute most tokens if each always runs as many sequences as it can: fewer never do."""
    together, step = full_steps(traffic, room, cost)
    seconds = cost.seconds(prompt_work(traffic.prompt)) + traffic.answer * step / together
    return max(1, math.floor(0.8 * traffic.rate * seconds))


def full_steps(traffic: Traffic, room: Room, cost: StepCost) -> tuple[int, float]:
    """Returns how many sequences run at once at the most, and the seconds of a step in which all of them decode."""
    together = max(1, min(room.slots, room.kv_tokens // (traffic.prompt + traffic.answer)))
    return together, cost.seconds(decode_work(together, traffic.prompt + traffic.answer // 2))
