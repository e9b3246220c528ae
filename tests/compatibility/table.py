"""The page `docs/compatibility.md`: what is served of TGI's interface, and why the rest is not."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from tests.compatibility.behaviours import BEHAVIOURS, Behaviour
from tests.compatibility.inventory import Entry
from tests.compatibility.reasons import Reason

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
YES, NO, NEVER = "yes", "no", "deliberately not"

_BEGINNING = """# What of Text Generation Inference is there

Every route, field, header, error type, metric and flag of TGI 3.3.7. `python -m tests.compatibility` writes this page:
it looks at the app's routes and its OpenAPI document, asks the app for an answer with each field, and reads the headers
of its answers, its metrics and the launcher's options. A test fails when the page is not what it would write.

*yes*: it is there, and does what it does in TGI. *no*: not yet. *deliberately not*: and it is to stay so.
"""
_BEHAVIOURS = """
## Behaviours

What a list of names does not show. *matched*: as in TGI. *improved*: TGI's clients do not notice, others gain. The test
named last shows it.

| | | test |
|---|---|---|
"""


class Unknown(Exception):
    """What is neither served nor has a reason not to be, or has a reason and is served, or is none of TGI's names."""


def check(entries: Sequence[Entry], reasons: Mapping[tuple[str, str], Reason]) -> None:
    """Raises Unknown."""
    missing = [(each.section, each.name) for each in entries if not each.is_served]
    if without := [key for key in missing if key not in reasons]:
        raise Unknown(f"not served, and tests/compatibility/reasons.py does not say why: {without}")
    if stale := [key for key in reasons if key not in missing]:
        raise Unknown(f"tests/compatibility/reasons.py says why it is not served, but it is, or is not TGI's: {stale}")


def render(entries: Sequence[Entry], reasons: Mapping[tuple[str, str], Reason]) -> str:
    check(entries, reasons)
    return "".join([_BEGINNING, _summary(entries, reasons), *_sections(entries, reasons), _BEHAVIOURS,
                    *(_row(each) for each in BEHAVIOURS)])


def _status(entry: Entry, reasons: Mapping[tuple[str, str], Reason]) -> str:
    if entry.is_served:
        return YES
    return NEVER if reasons[entry.section, entry.name].is_deliberate else NO


def _summary(entries: Sequence[Entry], reasons: Mapping[tuple[str, str], Reason]) -> str:
    rows = ["", f"| | {YES} | {NO} | {NEVER} |", "|---|---|---|---|"]
    for kind, group in groupby(entries, lambda each: _kind(each.section)):
        statuses = [_status(each, reasons) for each in group]
        rows.append(f"| {kind} | {' | '.join(str(statuses.count(status)) for status in (YES, NO, NEVER))} |")
    return "\n".join(rows) + "\n"


def _kind(section: str) -> str:
    kinds = {"Body": "Fields of bodies", "Answer": "Fields of answers", "Events": "Fields of events",
             "Headers": "Headers"}
    return kinds.get(section.partition(" ")[0], section)


def _sections(entries: Sequence[Entry], reasons: Mapping[tuple[str, str], Reason]) -> Iterator[str]:
    """A table for each kind; names that share their place and their reason share a row."""
    for kind, of_kind in groupby(entries, lambda each: _kind(each.section)):
        yield f"\n## {kind}\n\n| | | | |\n|---|---|---|---|\n"
        for section, group in groupby(of_kind, lambda each: each.section):
            rows: dict[tuple[str, str], list[str]] = {}
            for each in group:
                text = "" if each.is_served else reasons[section, each.name].text
                rows.setdefault((_status(each, reasons), text), []).append(f"`{each.name}`")
            where = "" if section == kind else f"`{section.partition(' of ')[2].replace(': ', '` `')}`"
            for (status, text), names in rows.items():
                yield f"| {where} | {status} | {', '.join(names)} | {text} |\n"


def _row(behaviour: Behaviour) -> str:
    return f"| {behaviour.text} | {behaviour.kind} | `{behaviour.test}` |\n"
