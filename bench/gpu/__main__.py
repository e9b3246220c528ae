"""`python -m penstock.bench.gpu`: measures everything on this machine's GPU, in less than ten minutes.

Prints tables, and writes them, all figures as JSON, the logs and what tuning found into OUT: four files, which are
written anew after each part, so that what was measured is there whatever happens next. Exits with 1 if a part failed;
what there is no time for is skipped, and said.
"""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from tqdm import tqdm

from penstock.bench.gpu.part import CASES_FAILED, PARTS, Part
from penstock.bench.gpu.records import Record, Records
from penstock.bench.gpu.report import REPORT, Report
from penstock.bench.gpu.scale import SCALES, Scale
from penstock.bench.programs.root import ROOT

GROUPS = {"engine": ("compiling", "engine", "profile", "8-bit caches", "no graphs"),
          "tuning": ("fast candidates", "fast tuning", "candidates", "tuning"),
          "deterministic": ("candidates", "tuning", "deterministic compiling", "deterministic")}
"""Parts that --only names by one of them."""
GRACE = 20.0                             # seconds that a part may go on for, with the case that it is at
END_SECONDS = 20.0                       # that a process may take to end what it has started
KILL_SECONDS = 5.0                       # that a killed process may take to end; one that a driver holds never does


def chosen(only: str | None) -> list[Part]:
    """Returns the parts to run. The ceilings are always among them, since shares need them."""
    names = list(PARTS) if only is None else only.split(",")
    for name in names:
        if name not in PARTS:
            raise click.UsageError(f"--only {name}: known are {', '.join(PARTS)}")
    wanted = {"ceilings", *(part for name in names for part in GROUPS.get(name, (name,)))}
    return [part for part in PARTS.values() if part.name in wanted]


def run_part(part: Part, scale: Scale, seconds: float, records: Records, bar: tqdm) -> bool:
    """Runs a part in processes of its own; returns whether it went well. What they say goes into a file beside the
    records, of which the last lines name the case that a process was at."""
    lacks_gpu = part.needs_gpu and not torch.cuda.is_available()
    if lacks_gpu or seconds <= 0:
        note = f"skipped: {'there is no GPU' if lacks_gpu else 'no time left'}"
        records.add(Record(part.name, "the part", {"note": note}))
        return True
    log, number = records.path.with_name(f"{part.name.replace(' ', '-')}.log"), part.workers
    with log.open("ab") as output:
        processes = [subprocess.Popen(
            [sys.executable, "-m", "penstock.bench.gpu.part", part.name, scale.name, str(seconds), str(records.path),
             str(index), str(number)], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT) for index in range(number)]
    end = time.monotonic() + seconds + min(GRACE, seconds)
    while any(process.poll() is None for process in processes) and time.monotonic() < end:
        bar.set_postfix_str(f"{part.name}: {sum(record.part == part.name for record in records)} figures")
        time.sleep(0.2)
    late = [process for process in processes if process.poll() is None]
    stop(late)
    last = (log.read_text(errors="replace").splitlines() or [""])[-1][:160]
    if late:
        records.add(Record(part.name, "the rest", {"note": f"stopped for want of time: {last}"}))
    codes = [process.returncode for process in processes if process not in late]
    if died := [code for code in codes if code not in (0, CASES_FAILED)]:
        note = f"the process ended with {died[0]}: {last}"
        records.add(Record(part.name, "the rest", {"note": note}, is_right=False))
    if any(codes):
        click.echo(f"{part.name}: see {log.name}", err=True)
    return not any(codes)


def stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """Asks processes to end, and with them what they have started; kills those that do not."""
    for process in processes:
        process.terminate()
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    for process in processes:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)


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
    print((out / REPORT).read_text())
    print(f"Figures and logs are in {out}")
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
