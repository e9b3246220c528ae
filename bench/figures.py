"""Draws the pictures and writes the tables of docs/: `python -m penstock.bench.figures`.

Each file in bench/results is one measurement with its raw figures (`penstock.bench.programs.record`). One of servers
under load, of policies of batching, of beam searches or of vectors gives a table in the page of its kind, between two
comments with its name; one of servers a picture in docs/figures, too. Those of policies are of runs of the scheduler.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from penstock.bench.batching import timelines
from penstock.bench.batching.runs import from_json
from penstock.bench.batching.runs import table as policies_table
from penstock.bench.embed import runs as embed_runs
from penstock.bench.programs.root import ROOT
from penstock.bench.server import beam_runs

RESULTS, PICTURES = ROOT / "bench/results", ROOT / "docs/figures"
PAGES = {"served": ROOT / "docs/benchmarks.md", "policies": ROOT / "docs/batching.md",
         "beams": ROOT / "docs/beams.md", "embeddings": ROOT / "docs/embeddings.md"}
"""Where the tables of a kind of measurement are."""
TIMELINES = {PICTURES / "batching.svg": timelines.COMING, PICTURES / "batching-at-once.svg": timelines.WAITING}

Record = Mapping[str, Any]


def records(kind: str) -> dict[str, Record]:
    """Returns the measurements of a kind by name."""
    found = {file.stem: json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))}
    return {name: record for name, record in found.items() if record["kind"] == kind}


def by_concurrency(record: Record) -> dict[str, dict[int, list[Record]]]:
    """Returns a run for each round, by server and number of requests at once."""
    found: dict[str, dict[int, list[Record]]] = {}
    for server, runs in record["figures"].items():
        levels = found.setdefault(server, defaultdict(list))
        for run in runs:
            levels[int(run["concurrency"])].append(run)
    return found


def rate(runs: list[Record]) -> float:
    """Returns the median over the rounds of the tokens a second."""
    return float(median(run["output_tokens_per_second"] for run in runs))


def table(record: Record) -> str:
    """Returns the table of a measurement, with how it was made."""
    tables = {"policies": _policies, "beams": _beams, "embeddings": _embeddings, "served": _served}
    return tables[record["kind"]](record)


def _policies(record: Record) -> str:
    runs = from_json(record["figures"])
    first = next(iter(runs.values()))
    return _lines(record, policies_table(runs), len(first) // len({run.slots for run in first}))


def _beams(record: Record) -> str:
    runs = beam_runs.from_json(record["figures"])
    return _lines(record, beam_runs.table(runs), len(next(iter(runs.values())).seconds))


def _embeddings(record: Record) -> str:
    runs = embed_runs.from_json(record["figures"])
    return _lines(record, embed_runs.table(runs, embed_runs.ENCODE), len(next(iter(runs.values())).rates))


def _lines(record: Record, table: Iterable[list[str]], rounds: int) -> str:
    """Returns a table of which the first row is the head, with how it was measured."""
    head, *rows = table
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in lines), "", _source(record, rounds)])


def _served(record: Record) -> str:
    servers = by_concurrency(record)
    lines = ["| requests at once | " + " | ".join(f"{name}, tokens/s | first token, ms | per token, ms"
                                                  for name in servers) + " |",
             "|---" * (1 + 3 * len(servers)) + "|"]
    for level in next(iter(servers.values())):
        cells = [f"{rate(runs[level]):.1f} | {_latency(runs[level], 'ttft_ms')} | {_latency(runs[level], 'tpot_ms')}"
                 for runs in servers.values()]
        lines.append(f"| {level} | {' | '.join(cells)} |")
    rounds = max(len(runs) for levels in servers.values() for runs in levels.values())
    return "\n".join([*lines, "", _source(record, rounds)])


def _source(record: Record, rounds: int) -> str:
    """Tells how a measurement was made."""
    return (f"{record['subject']}. {record['machine']}. Penstock {record['version']}, {record['date']}, medians of "
            f"{rounds} rounds. `{record['command']}`")


def _latency(runs: list[Record], metric: str) -> str:
    return f"{median(run[metric]['p50'] for run in runs):.1f}"


def draw(record: Record, file: Path) -> None:
    """Draws the tokens a second of each server by the number of requests at once."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": file.stem, "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        servers = by_concurrency(record)
        for number, (server, runs) in enumerate(servers.items()):
            width = 0.8 / len(servers)
            places = [place + number * width for place in range(len(runs))]
            bars = axes.bar(places, [rate(each) for each in runs.values()], width, label=server)
            axes.bar_label(bars, fmt="{:,.0f}")
        levels = list(next(iter(servers.values())))
        axes.set_xticks([place + 0.4 - 0.4 / len(servers) for place in range(len(levels))], [str(n) for n in levels])
        axes.set(xlabel="requests at once", ylabel="tokens/s")
        axes.set_title(f"{record['subject']}\n{record['machine']}, {record['date']}", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="svg", metadata={"Date": None})


def page(kind: str, text: str) -> str:
    """Returns the page of a kind with the tables of all its measurements."""
    for name, record in records(kind).items():
        before, mark, rest = text.partition(f"<!-- {name} -->\n")
        assert mark, f"{PAGES[kind].name} has no place for {name}"
        text = f"{before}{mark}\n{table(record)}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return text


def main() -> None:
    for name, record in records("served").items():
        draw(record, PICTURES / f"{name}.svg")
    for picture, example in TIMELINES.items():
        timelines.draw(example, picture)
    for kind, file in PAGES.items():
        file.write_text(page(kind, file.read_text()))


if __name__ == "__main__":
    main()
