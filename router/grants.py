"""The lines of the key file that grant something to those who bear a key: comments before it, of known words."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.router.scheduling.priorities import MAX_PRIORITY, MIN_PRIORITY
from penstock.router.scheduling.tenant import KvQuota, Tenant
from penstock.system.arguments import InvalidArgument

MAX_SHARE = 1000
MAX_RATE = 10**12
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_LINE = re.compile(r"#\s*([a-z-]+)\s*:\s*(.*)")


@dataclass(frozen=True, slots=True)
class Rate:
    """The number of something that may be used in the time of a unit: `s`, `min`, `h` or `d`."""

    number: int
    unit: str

    @property
    def seconds(self) -> int:
        return _SECONDS[self.unit]


@dataclass(frozen=True, slots=True)
class Grants:
    """Tells what is granted to the requests of a key; None stands for what has no bound of its own."""

    share: int | None = None
    """Its share of the service among the keys whose requests wait. If any key has one, those without have 1."""
    kv_quota: KvQuota | None = None
    """How much KV memory its running requests may hold together."""
    rate: Rate | None = None
    """How many requests may come in a time."""
    tokens: Rate | None = None
    """How many tokens of prompts and answers it may use in a time."""
    priority: int | None = None
    """The priority of requests that name none, which none may be before."""
    has_own_salt: bool = False
    """Whether its prompts share no keys and values with those of others."""

    @property
    def has_rates(self) -> bool:
        """Whether there is a bound on what may be used in a time."""
        return self.rate is not None or self.tokens is not None

    def tenant(self, name: str) -> Tenant | None:
        """Returns the tenant that the scheduler knows by the key's name, if there is anything that it must know."""
        return None if self.share is None and self.kv_quota is None else Tenant(name, self.share, self.kv_quota)


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


def _quota(text: str) -> KvQuota | None:
    found = re.fullmatch(r"([0-9]{1,13})(%?)", text)
    return KvQuota(int(found[1]), bool(found[2])) if found and 0 < int(found[1]) <= (
        100 if found[2] else MAX_RATE) else None


def _rate(text: str) -> Rate | None:
    found = re.fullmatch(r"([0-9]{1,13})/(s|min|h|d)", text)
    return Rate(int(found[1]), found[2]) if found and 0 < int(found[1]) <= MAX_RATE else None


_RATE = "a number > 0 and a unit of time, s, min, h or d, as in `60/min`"
_WORDS: Mapping[str, _Word] = {
    "share": _Word("share", f"an integer from 1 to {MAX_SHARE}", _integer(1, MAX_SHARE)),
    "kv-quota": _Word("kv_quota", "a number of tokens > 0, or a part of the memory from `1%` to `100%`", _quota),
    "rate": _Word("rate", _RATE, _rate),
    "tokens": _Word("tokens", _RATE, _rate),
    "priority": _Word("priority", f"an integer from {MIN_PRIORITY} to {MAX_PRIORITY}",
                      _integer(MIN_PRIORITY, MAX_PRIORITY)),
    "salt": _Word("has_own_salt", "`own`", {"own": True}.get),
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
