"""The picture of a load: throughput and latency against the pace, a line for each server."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import median

import click

from penstock.bench.load.measurement import TITLES, Run, percentile

Runs = Mapping[str, Mapping[float, Sequence[Run]]]
"""A run for each round, by server and by level of the pace."""


def check_matplotlib() -> None:
    """Raises ClickException if there is nothing to draw with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise click.ClickException("A picture needs matplotlib: pip install 'penstock[bench]'") from None


def draw(runs: Runs, title: str, pace: str, file: Path) -> None:
    """Draws medians over the rounds; latencies are medians over all requests, with a dotted line for p99."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    throughput, *latencies = figure.subplots(1, 3)
    for server, by_level in runs.items():
        levels = list(by_level)
        rates = [median(run.tokens_per_second for run in rounds) for rounds in by_level.values()]
        [line] = throughput.plot(levels, rates, marker="o", label=server)
        for axes, metric in zip(latencies, ("tpot", "ttft"), strict=True):
            pools = [list(chain.from_iterable(run.values(metric) for run in rounds)) for rounds in by_level.values()]
            for percent, style in ((50, "-"), (99, ":")):
                axes.plot(levels, [percentile(pool, percent) for pool in pools], style, marker="o",
                          color=line.get_color())
    for axes, label in ((throughput, "output tokens/s"), (latencies[0], f"{TITLES['tpot']}, ms: p50, dotted p99"),
                        (latencies[1], f"{TITLES['ttft']}, ms: p50, dotted p99")):
        axes.set(xlabel="requests/s sent" if pace == "rate" else pace, ylabel=label, ylim=(0, None))
    throughput.legend()
    figure.suptitle(title)
    figure.savefig(file, dpi=120)
