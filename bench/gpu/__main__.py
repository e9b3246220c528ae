"""`python -m penstock.bench.gpu`: checks and measures everything on this machine's GPU, in less than ten minutes.

Prints tables, and writes them, all figures as JSON and a picture into OUT. Exits with 1 if a kernel is wrong or a part
failed; what there is no time for is skipped, and said.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from tqdm import tqdm

from penstock.bench.gpu.part import PARTS, Part
from penstock.bench.gpu.picture import draw
from penstock.bench.gpu.records import Record, Records, table
from penstock.bench.gpu.scale import SCALES, Scale
from penstock.bench.gpu.targets import targets
from penstock.bench.programs.root import ROOT

GROUPS = {"kernels": ("kernels", "equalities"), "engine": ("engine", "no graphs"),
          "deterministic": ("tuning", "deterministic")}
"""Parts that --only names by one of them."""
GRACE = 20.0                             # seconds that a part may go on for, with the case that it is at
TAIL = 12                                # lines of a part that failed


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
    if seconds <= 0:
        records.add(Record(part.name, "the part", {"note": "skipped: no time left"}))
        return True
    log = records.path.with_name(f"{part.name.replace(' ', '-')}.log")
    command = [sys.executable, "-m", "penstock.bench.gpu.part", part.name, scale.name, str(seconds), str(records.path)]
    workers = 1 if scale.name == "tiny" else part.workers
    end, told = time.monotonic() + seconds + GRACE, ""
    with log.open("w") as output:
        processes = [
            subprocess.Popen([*command, str(index), str(workers)], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
            for index in range(workers)]
        while any(process.poll() is None for process in processes):
            count = sum(record.part == part.name for record in records)
            if told != (told := f"{part.name}: {count} figures"):
                bar.set_postfix_str(told)
            if time.monotonic() > end:
                return stop(part, processes, seconds, records)
            time.sleep(0.2)
    codes = [process.returncode for process in processes if process.returncode]
    has_told = any(record.part == part.name and record.is_right is False for record in records)
    if codes and (not has_told or set(codes) != {1}):
        lines = log.read_text(errors="replace").splitlines()[-TAIL:]
        records.add(Record(part.name, "the part", {"note": f"ended with {codes[0]}; {lines[-1:]}"}, False))
        click.echo("\n".join([f"{part.name}:", *lines]), err=True)
    return not codes


def stop(part: Part, processes: list[subprocess.Popen], seconds: float, records: Records) -> bool:
    """Ends a part that takes longer than there is time, which is a failure only of one that checks."""
    for process in processes:
        process.kill()
        process.wait()
    records.add(Record(part.name, "the rest", {"note": f"stopped after {seconds + GRACE:.0f} s"}))
    return part.workers == 1


def report(records: Records, scale: Scale) -> Iterator[str]:
    everything = list(records)
    for part in PARTS.values():
        own = [record for record in everything if record.part == part.name]
        if part.workers > 1:
            own.sort(key=lambda record: record.name)
        if own:
            yield from ("", f"## {part.title}", "", *([part.legend, ""] if part.legend else []), *table(own))
    if scale.name != "tiny":
        yield from ("", "## Targets", "", *table([target.judge(records) for target in targets(scale)]))
    wrong = [f"{record.part}: {record.name}" for record in everything if record.is_right is False]
    yield from ("", f"Wrong or failed: {', '.join(wrong) or 'nothing'}")


@click.command(help=__doc__)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "build" / "bench-gpu",
              show_default=True)
@click.option("--only", metavar="PARTS", help=f"Some of {', '.join(PARTS)}, with commas between.  "
              "[default: all]")
@click.option("--budget", type=float, default=560, show_default=True, metavar="SECONDS", help="For all parts.")
@click.option("--quick", "scale", flag_value="quick", help="Fewer sizes, and repeats.")
@click.option("--tiny", "scale", flag_value="tiny", help="Shows that the benchmark runs, on whatever there is: the "
              "times mean nothing.")
@click.option("--full", "scale", flag_value="full", default=True, help="The default.")
def main(out: Path, only: str | None, budget: float, scale: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    records = Records(out.absolute() / "figures.jsonl")
    records.path.unlink(missing_ok=True)
    parts, end, is_well = chosen(only), time.monotonic() + budget - GRACE, True
    with tqdm(total=len(parts), desc="Benchmark", unit="part", file=sys.stderr) as bar:
        for index, part in enumerate(parts):
            share = part.share / sum(other.share for other in parts[index:])
            is_well &= run_part(part, SCALES[scale], (end - time.monotonic()) * share, records, bar)
            bar.update()
    lines = list(report(records, SCALES[scale]))
    print(*lines, sep="\n")
    (out / "report.md").write_text("\n".join(lines) + "\n")
    (out / "figures.json").write_text(json.dumps([asdict(record) for record in records], indent=1))
    device = next((record.values["value"] for record in records if record.name == "device"), "no device")
    draw(list(records), f"{device}; {scale}", out / "gpu.png")
    print(f"Figures, logs and a picture are in {out}")
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
