"""The lines of the key file that grant something to those who bear a key: comments before it, of known words."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.router.scheduling.tenant import Tenant
from penstock.system.arguments import InvalidArgument

MAX_SHARE = 1000
_LINE = re.compile(r"#\s*([a-z-]+)\s*:\s*(.*)")


@dataclass(frozen=True, slots=True)
class Grants:
    """Tells what is granted to the requests of a key; None stands for what has no bound of its own."""

    share: int | None = None
    """Its share of the service among the keys whose requests wait. If any key has one, those without have 1."""

    def tenant(self, name: str) -> Tenant | None:
        """Returns the tenant that the scheduler knows by the key's name, if there is anything that it must know."""
        return None if self.share is None else Tenant(name, self.share)


NOTHING = Grants()


class _Word(NamedTuple):
    """A word of the file: the field of `Grants` that it sets, its value as a sentence says it, and the function that
    reads the value, and returns None for one that can't be."""

    field: str
    rule: str
    read: Callable[[str], Any]


def _integer(least: int, most: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        return int(text) if re.fullmatch(r"-?[0-9]{1,15}", text) and least <= int(text) <= most else None

    return read


_WORDS: Mapping[str, _Word] = {
    "share": _Word("share", f"an integer from 1 to {MAX_SHARE}", _integer(1, MAX_SHARE)),
}


def is_grant(line: str) -> bool:
    """Tells whether a line of the file grants something."""
    found = _LINE.fullmatch(line)
    return found is not None and found[1] in _WORDS


def read_grants(lines: Sequence[tuple[int, str]]) -> Grants:
    """Returns the grants in the comments before a key; each comes with its number in the file. Other comments mean
    nothing. Raises InvalidArgument."""
    values: dict[str, Any] = {}
    for number, line in lines:
        if not is_grant(line) or (found := _LINE.fullmatch(line)) is None:
            continue
        word, text = _WORDS[found[1]], found[2].strip()
        if word.field in values:
            raise InvalidArgument(f"`api_key_file`: line {number}: `# {found[1]}` stands before this key twice")
        if (value := word.read(text)) is None:
            raise InvalidArgument(f"`api_key_file`: line {number}: `# {found[1]}` must be {word.rule}. "
                                  f"Given: `{text:.100}`")
        values[word.field] = value
    return Grants(**values)


def completed(grants: Mapping[str, Grants]) -> dict[str, Grants]:
    """Returns the grants of all keys by their names: where one has a share, those without have one of 1."""
    if all(each.share is None for each in grants.values()):
        return dict(grants)
    return {name: replace(each, share=each.share or 1) for name, each in grants.items()}
