"""`python -m penstock.bench.gpu`: checks and measures everything on this machine's GPU, in less than ten minutes.

Prints tables, and writes them, all figures as JSON, the logs, a picture and what tuning found into OUT: five files,
which are written anew after each part, so that what was measured is there whatever happens next. Exits with 1 if a
kernel is wrong or a part failed; what there is no time for is skipped, and said.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from tqdm import tqdm

from penstock.bench.gpu.part import PARTS, Part
from penstock.bench.gpu.records import Record, Records
from penstock.bench.gpu.report import REPORT, Report
from penstock.bench.gpu.scale import SCALES, Scale
from penstock.bench.gpu.worker import Worker
from penstock.bench.programs.root import ROOT

GROUPS = {"kernels": ("kernels", "equalities"),
          "engine": ("compiling", "engine", "profile", "8-bit caches", "no graphs"),
          "tuning": ("candidates", "tuning"),
          "deterministic": ("candidates", "tuning", "deterministic compiling", "deterministic", "engine equalities"),
          "server": ("server", "kill and resume")}
"""Parts that --only names by one of them."""
GRACE = 20.0                             # seconds that a part may go on for, with the case that it is at


def chosen(only: str | None) -> list[Part]:
    """Returns the parts to run. The ceilings are always among them, since shares need them."""
    names = list(PARTS) if only is None else only.split(",")
    for name in names:
        if name not in PARTS:
            raise click.UsageError(f"--only {name}: known are {', '.join(PARTS)}")
    wanted = {"ceilings", *(part for name in names for part in GROUPS.get(name, (name,)))}
    return [part for part in PARTS.values() if part.name in wanted]


def run_part(part: Part, scale: Scale, seconds: float, records: Records, bar: tqdm) -> bool:
    """Runs a part; returns whether it went well. What it says goes into a file beside the records."""
    lacks_gpu = part.needs_gpu and not torch.cuda.is_available()
    if lacks_gpu or seconds <= 0:
        note = f"skipped: {'there is no GPU' if lacks_gpu else 'no time left'}"
        records.add(Record(part.name, "the part", {"note": note}))
        return True
    log, end = records.path.with_name(f"{part.name.replace(' ', '-')}.log"), time.monotonic() + seconds
    number = 1 if scale.name == "tiny" else part.workers
    workers = [Worker(part, scale, records, log, end, index, number) for index in range(number)]
    running, told = workers, ""
    while running := [worker for worker in running if not worker.is_done()]:
        count = sum(record.part == part.name for record in records)
        if told != (told := f"{part.name}: {count} figures"):
            bar.set_postfix_str(told)
        if time.monotonic() > end + (grace := min(GRACE, seconds)):
            for worker in running:
                worker.terminate()
            at = ", ".join(sorted({name for worker in running if (name := worker.stop())}))
            note = f"stopped after {seconds + grace:.0f} s, at {at}"
            records.add(Record(part.name, "the rest", {"note": note}, is_right=False if part.is_check else None))
            return not part.is_check
        time.sleep(0.2)
    if not all(worker.is_well for worker in workers):
        click.echo(f"{part.name}: see {log.name}", err=True)
    return all(worker.is_well for worker in workers)


@click.command(help=__doc__)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "build" / "bench-gpu",
              envvar="OUT", show_envvar=True, show_default=True)
@click.option("--only", metavar="PARTS", help=f"Some of {', '.join(PARTS)}, with commas between.  "
              "[default: all]")
@click.option("--budget", type=float, default=510, show_default=True, metavar="SECONDS", help="For all parts.")
@click.option("--quick", "scale", flag_value="quick", help="Fewer sizes, and repeats.")
@click.option("--tiny", "scale", flag_value="tiny", help="Shows that the benchmark runs, on whatever there is: the "
              "times mean nothing.")
@click.option("--full", "scale", flag_value="full", default=True, help="The default.")
def main(out: Path, only: str | None, budget: float, scale: str) -> None:
    parts, end, is_well = chosen(only), time.monotonic() + budget - GRACE, True
    with TemporaryDirectory() as folder, tqdm(total=len(parts), desc="Benchmark", unit="part", file=sys.stderr) as bar:
        records = Records(Path(folder) / "figures.jsonl")
        report = Report(out, records, SCALES[scale])
        for index, part in enumerate(parts):
            share = part.share / sum(other.share for other in parts[index:])
            is_well &= run_part(part, SCALES[scale], (end - time.monotonic()) * share, records, bar)
            report.write()
            bar.update()
        report.draw()
    print((out / REPORT).read_text())
    print(f"Figures, logs and a picture are in {out}")
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
