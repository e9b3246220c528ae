"""The command `penstock replay`."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import quantiles
from typing import BinaryIO

import click
from tqdm import tqdm

from penstock.bench.replay.asking import Outcome, Pace, ask_all
from penstock.bench.replay.recorded import Recorded, Unusable, read
from penstock.system.receipt_signature import BadSignature, verify

MOST_SHOWN = 20
"""How many differences are shown."""
CLIENTS = 8


@click.command()
@click.argument("file", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option("--url", default="http://127.0.0.1:3000", show_default=True, help="Server to ask.")
@click.option("--verify", "is_verified", is_flag=True,
              help="Compare the tokens of the answers with the recorded ones, and end with exit code 1 if any differ. "
                   "Without it the answers are printed, a line each.")
@click.option("--key", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Public key in PEM, as GET /receipt-key gives it: the signatures of the receipts are checked first.")
@click.option("--speed", type=click.FloatRange(0), default=0.0, show_default=True,
              help="Send requests so many times as fast as they came: 1 is at their own times, 0 as soon as answers "
                   "come.")
@click.option("--clients", type=click.IntRange(1),
              help="Requests at the same time, without --speed.  [default: 8]")
@click.option("--api-key", envvar="API_KEY", help="Key to send, if the server wants one.")
def main(
    file: BinaryIO, url: str, is_verified: bool, key: Path | None, speed: float, clients: int | None,
    api_key: str | None
) -> None:
    """Ask for recorded answers once more, and compare them.

    FILE, or standard input, is a receipt, an answer that has one, lines of these, or the log of requests that a server
    has written with --request-log-content texts. Answers are asked for by their names, so that another model, or one
    that is computed otherwise, says so; none comes from a cache.
    """
    if speed and clients is not None:
        raise click.UsageError("--clients is for requests that are sent as soon as answers come, without --speed")
    found = [*read(file.read())]
    records = [each for each in found if isinstance(each, Recorded)]
    for each in found:
        if isinstance(each, Unusable):
            click.echo(f"passed by: {each}", err=True)
    if not records:
        raise click.ClickException("there is nothing to ask for")
    if key is not None:
        _check_signatures(records, key.read_bytes())
    outcomes: list[Outcome] = []
    with tqdm(total=len(records), unit="request", disable=not sys.stderr.isatty()) as bar:
        def told(outcome: Outcome) -> None:
            outcomes.append(outcome)
            bar.update()
            if not is_verified:
                click.echo(outcome.answer.strip())

        asyncio.run(ask_all(url, records, Pace(speed, clients or CLIENTS), api_key, told))
    for line in report(outcomes):
        click.echo(line, err=not is_verified)
    num_different = sum(bool(outcome.difference) for outcome in outcomes)
    if num_different and (is_verified or any(outcome.error for outcome in outcomes)):
        sys.exit(1)


def report(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yields the lines of the report: how many answers are equal, which differ, and how long they took then and now."""
    different = [outcome for outcome in outcomes if outcome.difference]
    for outcome in different[:MOST_SHOWN]:
        yield f"{outcome.recorded.id}: {outcome.difference}"
    if len(different) > MOST_SHOWN:
        yield f"and {len(different) - MOST_SHOWN} more"
    yield f"{len(outcomes) - len(different)} of {len(outcomes)} answers are equal"
    yield f"seconds  {'p50':>8} {'p90':>8} {'p99':>8}"
    for name, seconds in (("then", [outcome.recorded.seconds for outcome in outcomes]),
                          ("now", [outcome.seconds for outcome in outcomes])):
        yield f"{name:<8} " + " ".join(f"{_percentile(seconds, percent):8.3f}" for percent in (50, 90, 99))


def _percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


def _check_signatures(records: Sequence[Recorded], public_key: bytes) -> None:
    for record in records:
        try:
            if record.receipt is None:
                raise BadSignature("it is no receipt")
            verify(record.receipt, public_key)
        except BadSignature as error:
            raise click.ClickException(f"{record.id}: {error}") from error
