"""What the faults cost: a record of each, and a table of them in markdown with a line for each kind."""

import itertools
import json
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.ledger import Ledger, Strike
from tests.faults.schedule import KINDS, Kind

ROUTES = ("/readyz", "/health", "/livez")
HEADER = """\
| fault | times | requests that it met | connections cut or refused | longest pause of a stream, s | \
until ready again, s | `/readyz` | `/health` | `/livez` |
|---|---|---|---|---|---|---|---|---|"""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Record:
    """What one fault cost. `probed` has the statuses of each health route while it lasted; None is no answer."""

    seed: int
    kind: str
    num_met: int
    num_cut: int
    pause: float
    until_ready: float
    probed: dict[str, list[int | None]]


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of one run."""

    seed: int
    ledger: Ledger
    impossible: Sequence[Kind]
    log: bytes

    def records(self) -> list[Record]:
        return [self._record(strike) for strike in self.ledger.strikes]

    def asked_beside(self, strike: Strike) -> Iterator[str]:
        """Yields the kind of each request that was answered right and ran while the fault lasted."""
        return (kind for begin, end, kind in self.ledger.answers if strike.includes(begin, end))

    def summary(self) -> str:
        ledger = self.ledger
        answers = Counter(kind for *_, kind in ledger.answers)
        return "\n".join([
            f"Seed {self.seed}: {len(ledger.strikes)} faults, {len(ledger.answers)} answers, each as without faults; "
            f"{len(ledger.losses)} connections cut or refused, whose requests were sent again.",
            "Answers: " + ", ".join(f"{kind} {number}" for kind, number in sorted(answers.items())) + ".",
            *(f"Not possible on this machine, for it needs {kind.needs.value}: {kind.name}."
              for kind in self.impossible)])

    def log_lines(self) -> str:
        """Returns the warnings and errors of the server's log by the kind of fault, from the first of each."""
        parts = {}
        for strike in self.ledger.strikes:
            text = _COLOURS.sub("", self.log[strike.log_begin:strike.log_end].decode(errors="replace"))
            said = [line for line in text.splitlines() if "WARN" in line or "ERROR" in line]
            parts.setdefault(strike.event.kind.name, "\n".join(f"    {line}" for line in said))
        return "\n".join(f"{name}:\n{lines}" for name, lines in parts.items())

    def _record(self, strike: Strike) -> Record:
        ledger = self.ledger
        probed = {route: sorted({status for at, path, status in ledger.probes
                                 if path == route and strike.includes(at, at)}, key=lambda status: status or 0)
                  for route in ROUTES}
        return Record(
            seed=self.seed, kind=strike.event.kind.name, num_met=len(list(self.asked_beside(strike))),
            num_cut=sum(strike.includes(loss.ended_at, loss.ended_at) for loss in ledger.losses),
            pause=ledger.longest_silence(strike), until_ready=(strike.over_at or 0.0) - strike.began_at, probed=probed)


def write(records: Iterable[Record], file: Path) -> None:
    """Adds records to a file, one a line."""
    with file.open("a") as lines:
        for record in records:
            lines.write(json.dumps(asdict(record)) + "\n")


def read(file: Path) -> list[Record]:
    return [Record(**json.loads(line)) for line in file.read_text().splitlines()]


def table(records: Sequence[Record]) -> str:
    """Returns the table of faults, of one run or of several."""
    rows = [HEADER]
    for kind in KINDS:
        if found := [record for record in records if record.kind == kind.name]:
            rows.append(f"| {' | '.join(_cells(kind.name, found))} |")
    return "\n".join(rows)


def _cells(name: str, found: Sequence[Record]) -> list[str]:
    return [name, str(len(found)), str(sum(record.num_met for record in found)),
            str(sum(record.num_cut for record in found)), _both(found, lambda record: record.pause),
            _both(found, lambda record: record.until_ready), *(_statuses(found, route) for route in ROUTES)]


def _both(found: Sequence[Record], value: Callable[[Record], float]) -> str:
    values = list(map(value, found))
    return f"{statistics.median(values):.1f} (at most {max(values):.1f})" if max(values) >= 0.05 else "none"


def _statuses(found: Sequence[Record], route: str) -> str:
    """Says what a route answered beside 200, which it always answers in the end."""
    statuses = set(itertools.chain.from_iterable(record.probed[route] for record in found)) - {200}
    return ", ".join("no answer" if status is None else str(status)
                     for status in sorted(statuses, key=lambda status: status or 0)) or "200"
