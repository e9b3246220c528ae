"""The picture of a plan: what is in the memory of a GPU, and, of traffic, what the machines cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from penstock.bench.load.picture import check_matplotlib
from penstock.bench.planning.fits import step_memory
from penstock.bench.planning.groups import Choice, Way
from penstock.bench.planning.model_size import ModelSize


def check_file(file: Path) -> None:
    """Raises ClickException if there is nothing to draw with, or the name is another kind of picture's."""
    check_matplotlib()
    if file.suffix != ".svg":
        raise click.ClickException(f"--picture {file}: the name of a picture ends in .svg")


def draw(title: str, size: ModelSize, ways: Sequence[Way], choices: Sequence[Choice], file: Path) -> None:
    """Writes an SVG with a bar for each way in which the model fits, and one for each choice."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": file.stem, "svg.fonttype": "none", "font.family": "sans-serif"}):
        rows = max(len(ways), len(choices))
        figure = Figure(figsize=(12 if choices else 7.2, 1.4 + 0.28 * rows), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(1, 1 + bool(choices), squeeze=False)[0]
        _draw_memory(axes[0], size, ways)
        if choices:
            _draw_prices(axes[1], choices)
        for each in axes:
            each.spines[["top", "right"]].set_visible(False)
        figure.suptitle(title, fontsize=9)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="svg", metadata={"Date": None})


def _draw_memory(axes: Any, size: ModelSize, ways: Sequence[Way]) -> None:
    parts: dict[str, list[float]] = {
        "weights": [size.weight_bytes / way.fit.num_shards for way in ways],
        "the largest step": [float(step_memory(size)) for _ in ways],
        "keys and values": [way.fit.kv_tokens * size.kv_bytes(way.fit.num_shards) for way in ways]}
    starts = [0.0] * len(ways)
    for name, numbers in parts.items():
        axes.barh(range(len(ways)), [number / 1e9 for number in numbers], left=starts, label=name)
        starts = [start + number / 1e9 for start, number in zip(starts, numbers, strict=True)]
    _name_rows(axes, ways)
    axes.set(xlabel="GB of each shard")
    axes.legend(frameon=False, fontsize=8)


def _draw_prices(axes: Any, choices: Sequence[Choice]) -> None:
    bars = axes.barh(range(len(choices)), [choice.monthly for choice in choices], color="tab:gray")
    axes.bar_label(bars, [
        f" {choice.machines} × {choice.way.fit.machine.name}, first token {choice.outcome.first_token(90):.2f} s (p90)"
        for choice in choices], fontsize=8)
    _name_rows(axes, [choice.way for choice in choices])
    axes.set(xlabel="$ a month", xlim=(0, 1.6 * max(choice.monthly for choice in choices) or 1))


def _name_rows(axes: Any, ways: Sequence[Way]) -> None:
    axes.set_yticks(range(len(ways)), [f"{way.fit.machine.name}, {way.fit.num_shards}" for way in ways], fontsize=8)
    axes.set(ylim=(len(ways) - 0.5, -0.5))
