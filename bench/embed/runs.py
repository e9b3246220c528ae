"""The figures of vectors beside peers', and their table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles
from typing import Any

import numpy as np

from penstock.bench.embed.asking import Vectors

ENCODE = "sentence-transformers' encode"
"""The contender that all others are compared with."""


@dataclass
class Run:
    """The figures of one contender: the texts in a call of which it is fastest, the texts a second in each round, the
    median and the 99th percentile of the milliseconds that one short text took, and the least and the mean cosine of
    its vectors to those of sentence-transformers."""

    batch: int
    rates: list[float] = field(default_factory=list)
    short_ms: list[float] = field(default_factory=list)
    cosine: list[float] = field(default_factory=list)


Runs = Mapping[str, Run]
"""By contender."""


def percentiles(seconds: Sequence[float]) -> list[float]:
    """Returns the median and the 99th percentile, in milliseconds."""
    return [1e3 * median(seconds), 1e3 * quantiles(seconds, n=100)[98]]


def nearness(ours: Vectors, theirs: Vectors) -> list[float]:
    """Returns the least and the mean cosine of pairs of vectors."""
    one, other = ours.astype(np.float64), theirs.astype(np.float64)
    found = (one * other).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1))
    return [float(found.min()), float(found.mean())]


def ratio(runs: Runs, one: str, other: str) -> float:
    """Returns how many times as many texts a second the first computes: the median of the rounds' ratios."""
    return median(mine / theirs for mine, theirs in zip(runs[one].rates, runs[other].rates, strict=True))


def table(runs: Runs, beside: str) -> Iterator[list[str]]:
    """Yields a head, and a row for each contender, each compared with the one named."""
    yield ["", "texts/s", f"÷ {beside}", "texts in a call", "a short text, p50 ms", "p99 ms", "least cosine",
           "mean cosine"]
    for name, run in runs.items():
        share = f"{ratio(runs, name, beside):.2f}" if beside in runs else "–"
        milliseconds = [f"{each:.2f}" for each in run.short_ms] or ["–", "–"]
        cosine = [f"{each:.7f}" for each in run.cosine] or ["–", "–"]
        yield [name, f"{median(run.rates):.1f}", share, str(run.batch), *milliseconds, *cosine]


def to_json(runs: Runs) -> dict[str, dict[str, Any]]:
    return {name: asdict(run) for name, run in runs.items()}


def from_json(figures: Mapping[str, Mapping[str, Any]]) -> Runs:
    return {name: Run(**run) for name, run in figures.items()}
