"""Plants each fault in a copy of the tree, runs the tests that should find it, and prints whether they do."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from tests.paths import ROOT
from tests.planted.fault import Fault
from tests.planted.faults import FAULTS

FOUND, NOT_FOUND, ERROR = "found", "NOT FOUND", "ERROR"


def copy_tree(target: Path) -> None:
    """Copies the files of the tree, those not committed too, and the compiled kernels."""
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                             capture_output=True, text=True, check=True)
    libraries = (path.relative_to(ROOT) for path in (ROOT / "kernels/lib").glob("*.so"))
    for name in [*filter(None, listing.stdout.split("\0")), *libraries]:
        source, place = ROOT / name, target / name
        if source.is_symlink() or source.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place, follow_symlinks=False)


def plant(fault: Fault, tree: Path) -> None:
    """Changes the copy. ValueError if the text to be changed is not there, or more than once."""
    file = tree / fault.file
    text = file.read_text() if file.is_file() else ""
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.file} has {text.count(fault.old)} places that read {fault.old!r}, one is needed")
    file.write_text(text.replace(fault.old, fault.new))


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in the copy, whose `penstock` comes before the one that is installed, in spawned processes too."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True,
                          check=False)


def check_copy(tree: Path) -> None:
    place = run(tree, "-P", "-c", "import penstock; print(penstock.__file__)").stdout.strip()
    if not place.startswith(f"{tree}/"):
        raise RuntimeError(f"the copy's tests would import {place}")


def try_fault(fault: Fault) -> tuple[str, str]:
    """Returns the verdict and what it rests on: the first test that fails, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix=f"penstock-{fault.name}-") as folder:
        tree = Path(folder).resolve()
        copy_tree(tree)
        try:
            plant(fault, tree)
        except ValueError as error:
            return ERROR, str(error)
        check_copy(tree)
        if fault.is_compiled and (built := run(tree, "-m", "penstock.kernels.build")).returncode:
            return ERROR, built.stderr[-500:]
        tests = run(tree, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", *fault.tests)
    first = next((line for line in tests.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    if tests.returncode == 0:
        return NOT_FOUND, " ".join(fault.tests)
    if tests.returncode == 1:
        return FOUND, first.partition(" - ")[0].partition(" ")[2]
    return ERROR, first or (tests.stdout + tests.stderr)[-500:]


def check_without_faults(faults: list[Fault]) -> None:
    """The tests must pass without a fault, or they prove nothing."""
    tests = sorted({test for fault in faults for test in fault.tests})
    with tempfile.TemporaryDirectory(prefix="penstock-sound-") as folder:
        tree = Path(folder).resolve()
        copy_tree(tree)
        check_copy(tree)
        sound = run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *tests)
    if sound.returncode:
        raise click.ClickException(f"without a fault these tests fail:\n{sound.stdout[-3000:]}")


@click.command()
@click.option("--only", metavar="WORD", help="Take the faults with WORD in their names or areas.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Faults that are tried at a time.")
@click.option("--sound/--no-sound", default=True, help="First see that the tests pass without a fault.")
def main(only: str | None, jobs: int, sound: bool) -> None:
    """Plant faults in copies of this tree, and see whether the quick tests named for each find it."""
    faults = [fault for fault in FAULTS if not only or only in fault.name or only in fault.area]
    if sound:
        check_without_faults(faults)

    def timed(fault: Fault) -> tuple[Fault, str, str, float]:
        begin = time.monotonic()
        return fault, *try_fault(fault), time.monotonic() - begin

    verdicts = []
    with ThreadPoolExecutor(jobs) as threads:
        for fault, verdict, what, seconds in threads.map(timed, faults):
            verdicts.append(verdict)
            click.echo(f"{fault.area:10} {fault.name:34} {verdict:9} {seconds:6.1f} s  {what}")
    click.echo(f"{verdicts.count(FOUND)} of {len(verdicts)} found, {verdicts.count(NOT_FOUND)} not found, "
               f"{verdicts.count(ERROR)} that could not be tried")
    sys.exit(verdicts.count(FOUND) != len(verdicts))


if __name__ == "__main__":
    main()
