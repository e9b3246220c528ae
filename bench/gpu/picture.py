"""The picture of a run: decode and prompts beside their floors, and each op beside its ceiling."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from penstock.bench.gpu.records import Record

LABELS = {"engine": "engine", "no graphs": "without CUDA graphs", "deterministic": "--deterministic"}


def draw(records: list[Record], title: str, file: Path) -> None:
    plt.switch_backend("agg")
    figure, (rates, shares, ops) = plt.subplots(1, 3, figsize=(17, 8), layout="constrained", width_ratios=(3, 3, 4))
    for part, label in LABELS.items():
        _line(rates, records, part, "decode, ", label, "tokens/s")
        _line(shares, records, part, "decode, ", f"decode, {label}", "% of floor")
        _line(shares, records, part, "prefill ", f"prefill, {label}", "% of floor", marker="s", linestyle=":")
    for kind in ("generate", "continuous batching"):
        _line(rates, records, "transformers", f"{kind}, ", f"transformers, {kind}", "tokens/s")
    rates.set(title="the engine", xlabel="sequences", ylabel="tokens/s, decode", xscale="log", yscale="log")
    shares.set(title="the engine, beside its floor", xlabel="sequences, or tokens of a prompt", ylabel="% of the floor",
               xscale="log", ylim=(0, 105))
    _bars(ops, records)
    for axes in (rates, shares):
        if axes.lines:
            axes.legend(fontsize=8)
        else:
            axes.set_visible(False)
    figure.suptitle(title)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _line(axes: Any, records: list[Record], part: str, prefix: str, label: str, column: str, **form: str) -> None:
    """Draws a column of a part's records against the number that a record's name has first."""
    points = []
    for record in records:
        number = record.name.removeprefix(prefix).split()[0]
        if record.part == part and record.name.startswith(prefix) and number.isdigit() and column in record.values:
            points.append((int(number), record.values[column]))
    if points:
        axes.plot(*zip(*sorted(points), strict=True), label=label, **({"marker": "o"} | form))


def _bars(axes: Any, records: list[Record]) -> None:
    found = [(record.name, max(record.values["% of copy"], record.values["% of matmul"])) for record in records
             if record.part == "attention" and "% of copy" in record.values]
    if not found:
        axes.set_visible(False)
        return
    names, values = zip(*reversed(found), strict=True)
    axes.barh(names, values)
    axes.tick_params(axis="y", labelsize=5)
    axes.set(title="ops", xlabel="% of the ceiling", xlim=(0, 105))
