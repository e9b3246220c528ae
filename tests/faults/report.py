"""What the faults cost: a table in markdown, a line for each kind."""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.ledger import Ledger, Strike
from tests.faults.schedule import KINDS, Kind

HEADER = """\
| fault | times | answers that it met | cut, and asked for again | longest pause of a stream (s): median, max | \
ready again after (s): median, max | `/readyz` | `/health` | `/livez` |
|---|---|---|---|---|---|---|---|---|"""
_PLAIN = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of one run, or of several."""

    seed: int
    ledger: Ledger
    impossible: Sequence[Kind]
    log: Path

    def markdown(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        ledger = self.ledger
        seconds = ledger.strikes[-1].over_at - ledger.strikes[0].began_at if ledger.strikes else 0.0
        yield (f"Seed {self.seed}: {len(ledger.strikes)} faults in {seconds:.0f} s, {len(ledger.answers)} answers, "
               f"each as without faults; {len(ledger.losses)} connections cut or refused and tried again.")
        yield ""
        yield HEADER
        for kind in KINDS:
            if strikes := [strike for strike in ledger.strikes if strike.event.kind is kind]:
                yield self._row(kind, strikes)
        yield ""
        kinds = Counter(kind for *_, kind in ledger.answers)
        yield "Answers by kind: " + ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items())) + "."
        for kind in self.impossible:
            yield f"Not possible on this machine, for it needs {kind.needs.value}: {kind.name}."

    def num_met(self, strike: Strike) -> int:
        """Returns how many of the requests that were answered ran while the fault lasted."""
        return sum(strike.includes(begin, end) for begin, end, _ in self.ledger.answers)

    def _row(self, kind: Kind, strikes: Sequence[Strike]) -> str:
        ledger = self.ledger
        met = sum(map(self.num_met, strikes))
        cut = sum(strike.includes(loss.began_at, loss.ended_at) for strike in strikes for loss in ledger.losses)
        pauses = [ledger.longest_silence(strike) for strike in strikes]
        ready = [(strike.over_at or strike.began_at) - strike.began_at for strike in strikes]
        probes = [self._probed(strikes, route) for route in ("/readyz", "/health", "/livez")]
        cells = [kind.name, len(strikes), met, cut, _both(pauses), _both(ready), *probes]
        return f"| {' | '.join(map(str, cells))} |"

    def _probed(self, strikes: Sequence[Strike], route: str) -> str:
        """The statuses that a route gave while the faults lasted."""
        found = {status for at, path, status in self.ledger.probes for strike in strikes
                 if path == route and strike.includes(at, at)}
        return ", ".join("none" if status is None else str(status) for status in sorted(found, key=lambda s: s or 0))

    def log_lines(self) -> str:
        """Returns the warnings and errors of the server's log by the kind of fault, from the first of each."""
        log, parts, seen = self.log.read_bytes(), [], set()
        for strike in self.ledger.strikes:
            if strike.event.kind in seen:
                continue
            seen.add(strike.event.kind)
            lines = _PLAIN.sub("", log[strike.log_begin:strike.log_end].decode(errors="replace")).splitlines()
            said = [line for line in lines if "WARN" in line or "ERROR" in line]
            parts.append("\n".join([f"{strike.event.kind.name}:", *(f"    {line}" for line in said)]))
        return "\n".join(parts)


def _both(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f}, {max(values):.1f}"
