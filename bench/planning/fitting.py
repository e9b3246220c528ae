"""Fits the cost of steps to how long some took."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from penstock.bench.planning.costs import Measured, StepWork


@dataclass(frozen=True)
class Observation:
    """How long some steps took, on average so many, that had some work together. A request may have been sent first."""

    work: StepWork
    seconds: float
    steps: float = 1.0
    requests: int = 0


def fit(observations: Sequence[Observation]) -> Measured:
    """Returns the cost whose squared relative errors are smallest among those without a part below 0. Of several
    observations of the same the median counts."""
    same = defaultdict(list)
    for each in observations:
        same[replace(each, seconds=0.0)].append(each.seconds)
    observations = [replace(each, seconds=median(every)) for each, every in same.items()]
    seconds = np.array([each.seconds for each in observations])
    columns = np.array([[each.steps, each.work.samples, each.work.tokens - each.work.samples, each.work.read,
                         each.work.pairs, each.requests] for each in observations], float) / seconds[:, None]
    chosen, found = [*range(columns.shape[1])], np.zeros(0)
    while chosen:
        found = np.linalg.lstsq(columns[:, chosen], np.ones(len(seconds)), rcond=None)[0]
        worst = int(np.argmin(found))
        if found[worst] >= 0:
            break
        del chosen[worst]
    parts = dict(zip(chosen, map(float, found), strict=True))
    return Measured(*(parts.get(number, 0.0) for number in range(columns.shape[1])))
