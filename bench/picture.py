"""The picture of a comparison: throughput and latency against concurrency, a line for each server."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import median

import matplotlib.pyplot as plt

from penstock.bench.load import Load, percentile

Loads = Mapping[str, Mapping[int, Sequence[Load]]]
"""By server and concurrency, a load for each round."""


def draw(loads: Loads, title: str, file: Path) -> None:
    figure, (throughput, per_token, first) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for server, by_concurrency in loads.items():
        numbers = list(by_concurrency)
        rates = [median(load.tokens_per_second for load in rounds) for rounds in by_concurrency.values()]
        throughput.plot(numbers, rates, marker="o", label=server)
        for axes, times in ((per_token, "per_token"), (first, "first")):
            values = [1e3 * percentile(list(chain.from_iterable(getattr(load, times) for load in rounds)), 0.5)
                      for rounds in by_concurrency.values()]
            axes.plot(numbers, values, marker="o", label=server)
    for axes, label in ((throughput, "output tokens/s"), (per_token, "time per token, median, ms"),
                        (first, "time to the first token, median, ms")):
        axes.set(xlabel="concurrency", ylabel=label, ylim=(0, None))
    throughput.legend()
    figure.suptitle(title)
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, dpi=120)
