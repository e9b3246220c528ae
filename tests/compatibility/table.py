"""The page `docs/compatibility.md`: what is served of TGI's interface, and why the rest is not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from penstock.router.generation.other_fields import (
    IGNORED,
    REFUSED_BESIDE_INPUTS,
    REFUSED_IN_CHATS,
    REFUSED_IN_COMPLETIONS,
    REFUSED_IN_PARAMETERS,
)
from tests.compatibility.behaviours import BEHAVIOURS, Behaviour
from tests.compatibility.inventory import Entry
from tests.compatibility.reasons import Reason

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
REFUSED = {"in chats": REFUSED_IN_CHATS, "in completions": REFUSED_IN_COMPLETIONS,
           "in TGI's `parameters`": REFUSED_IN_PARAMETERS, "beside `inputs`": REFUSED_BESIDE_INPUTS}
"""The names of other fields that are refused, by their place."""
_STATUSES = YES, ACCEPTED, NO, NEVER = "yes", "accepted", "no", "deliberately not"

_BEGINNING = """# What of Text Generation Inference is there

Every route, field, header, error type, metric and flag of TGI 3.3.7. `python -m tests.compatibility` writes this page
from what the whole app answers, over shards that give written answers. A test fails when the page is not what it would
write. OpenAI's routes are looked at with `--tgi-openai-routes`; without it they have OpenAI's shapes, errors included.

*yes*: a request showed it. Routes, headers and fields of answers are those of real answers; each error was provoked; a
field of a body made a difference between two requests that differ in it alone, in the answer, in the prompt or in what
the shards are told. Metrics are read from `/metrics`, flags from the launcher's options. *accepted*: a request may have
it, and nothing shows an effect. *no*: not yet. *deliberately not*: and it is to stay so.
"""
_TEI = """
# What of Text Embeddings Inference is there

The same for TEI 1.9, of servers whose models make vectors or scores: each route of a model that it is for. OpenAI's
routes are looked at with `--tgi-openai-routes`, which means TEI's manner there.
"""
_OTHERS = """
## Other fields

A field of OpenAI's or of another server that would change the answer, or what is promised of it, is refused by name,
unless its value asks for nothing, or the body itself turns off what it tunes: on OpenAI's routes (with 400, or 422 with
`--tgi-openai-routes`), and in `parameters` and beside `inputs` on TGI's own (422). Other fields are ignored, those
below and those that nobody knows.

| | |
|---|---|
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


Reasons = Mapping[tuple[str, str], Reason]


def check(entries: Sequence[Entry], reasons: Reasons) -> None:
    """Raises Unknown."""
    missing = [(each.section, each.name) for each in entries if not each.is_served]
    if without := [key for key in missing if key not in reasons]:
        raise Unknown(f"not served, and tests/compatibility/reasons.py does not say why: {without}")
    if stale := [key for key in reasons if key not in missing]:
        raise Unknown(f"tests/compatibility/reasons.py says why it is not served, but it is, or is not TGI's: {stale}")


def render(entries: Sequence[Entry], reasons: Reasons, of_tei: Sequence[Entry], tei_reasons: Reasons) -> str:
    check(entries, reasons)
    check(of_tei, tei_reasons)
    return "".join([_BEGINNING, _summary(entries, reasons), *_sections(entries, reasons), *other_fields(), _BEHAVIOURS,
                    *(_row(each) for each in BEHAVIOURS), _TEI, _summary(of_tei, tei_reasons),
                    *_sections(of_tei, tei_reasons, of="TEI's ")])


def _status(entry: Entry, reasons: Reasons) -> str:
    if entry.is_served:
        return YES if entry.is_seen else ACCEPTED
    return NEVER if reasons[entry.section, entry.name].is_deliberate else NO


def _summary(entries: Sequence[Entry], reasons: Reasons) -> str:
    rows = ["", f"| | {' | '.join(_STATUSES)} |", "|---|---|---|---|---|"]
    for kind, group in groupby(entries, lambda each: _kind(each.section)):
        statuses = [_status(each, reasons) for each in group]
        rows.append(f"| {kind} | {' | '.join(str(statuses.count(status)) for status in _STATUSES)} |")
    return "\n".join(rows) + "\n"


def _kind(section: str) -> str:
    kinds = {"Body": "Fields of bodies", "Answer": "Fields of answers", "Events": "Fields of events",
             "Headers": "Headers"}
    return kinds.get(section.partition(" ")[0], section)


def _sections(entries: Sequence[Entry], reasons: Reasons, of: str = "") -> Iterator[str]:
    """A table for each kind; names that share their place and their reason share a row."""
    for kind, of_kind in groupby(entries, lambda each: _kind(each.section)):
        title = f"{of}{kind[0].lower()}{kind[1:]}" if of else kind
        yield f"\n## {title}\n\n| | | | |\n|---|---|---|---|\n"
        for section, group in groupby(of_kind, lambda each: each.section):
            rows: dict[tuple[str, str], list[str]] = {}
            for each in group:
                text = "" if each.is_served else reasons[section, each.name].text
                rows.setdefault((_status(each, reasons), text), []).append(f"`{each.name}`")
            where = "" if section == kind else f"`{section.partition(' of ')[2].replace(': ', '` `')}`"
            for (status, text), names in rows.items():
                yield f"| {where} | {status} | {', '.join(names)} | {text} |\n"


def other_fields() -> Iterator[str]:
    yield _OTHERS
    common = set.intersection(*map(set, REFUSED.values()))
    yield f"| refused | {_listed(common)} |\n"
    for where, names in REFUSED.items():
        yield f"| refused {where} | {_listed(names.keys() - common)} |\n"
    for reason in dict.fromkeys(IGNORED.values()):
        yield f"| ignored: {reason} | {_listed(name for name, why in IGNORED.items() if why == reason)} |\n"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _row(behaviour: Behaviour) -> str:
    return f"| {behaviour.text} | {behaviour.kind} | `{behaviour.test}` |\n"
