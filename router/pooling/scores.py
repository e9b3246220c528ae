"""From the raw scores of a model to those that are shown, and from scores to ranks."""

import math
from collections.abc import Callable, Sequence
from operator import mul, sub


def activated(raw: Sequence[float], activation: str) -> list[float]:
    """Returns the scores that are shown: by `sigmoid` each for itself, by `softmax` as shares of 1, by any other name
    as they are."""
    if activation == "sigmoid":
        return [_sigmoid(each) for each in raw]
    if activation == "softmax":
        most = max(raw)
        powers = [math.exp(each - most) for each in raw]
        total = sum(powers)
        return [each / total for each in powers]
    return [*raw]


def _sigmoid(number: float) -> float:
    """Computed of the smaller power, for the larger one may be beyond all numbers."""
    power = math.exp(-abs(number))
    return (1.0 if number >= 0 else power) / (1.0 + power)


def ranked(scores: Sequence[float]) -> list[int]:
    """Returns the places of scores, the highest score first; equal ones are in their order."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Returns the cosine of two vectors; 0 if one of them has no length."""
    length = math.hypot(*one) * math.hypot(*other)
    return _dot(one, other) / length if length else 0.0


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    total: float = sum(map(mul, one, other))
    return total


def _euclidean(one: Sequence[float], other: Sequence[float]) -> float:
    return -math.dist(one, other)


def _manhattan(one: Sequence[float], other: Sequence[float]) -> float:
    return -math.fsum(map(abs, map(sub, one, other)))


SIMILARITIES: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "cosine": _cosine, "dot": _dot, "euclidean": _euclidean, "manhattan": _manhattan}
"""By sentence-transformers' names, what tells how alike two vectors are; a distance counts as less than nothing."""
