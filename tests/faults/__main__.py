"""`python -m tests.faults` disturbs a server for as long as wanted, and reports what that cost as markdown."""

import asyncio
import random
import sys
import tempfile
from pathlib import Path

import click

from tests.faults import schedule
from tests.faults.driver import Failure, run
from tests.faults.report import read, table, write


@click.command()
@click.option("--seconds", default=180.0, help="How long to go on.", show_default=True)
@click.option("--seed", type=int, help="What the faults and the requests are drawn from. Default: another each time.")
@click.option("--only", multiple=True, help="A part of the names of the kinds of faults wanted; can be given again.")
@click.option("--records", type=click.Path(dir_okay=False, path_type=Path),
              help="A file that the record of each fault is added to; the table is then of all in it.")
@click.option("--log-lines", is_flag=True, help="Show what the server logged at the first fault of each kind.")
@click.option("--list", "is_list", is_flag=True, help="List the kinds of faults.")
def main(
    seconds: float, seed: int | None, only: tuple[str, ...], records: Path | None, log_lines: bool, is_list: bool
) -> None:
    """Disturb a server of the demo model beside mixed load, and compare every answer."""
    try:
        kinds = schedule.choose(only)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--only") from error
    if is_list:
        print("\n".join(kind.name for kind in kinds))
        return
    seed = random.randrange(1 << 32) if seed is None else seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        try:
            report = asyncio.run(run(Path(folder), seed, kinds, seconds=seconds))
        except Failure as failure:
            sys.exit(str(failure))
    found = report.records()
    if records is not None:
        write(found, records)
        found = read(records)
    print(report.summary(), table(found), sep="\n\n")
    if log_lines:
        print(report.log_lines())


if __name__ == "__main__":
    main()
