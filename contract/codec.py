"""Converts nouns to messages and back, field by field: a field needs no word here if it is equal on both sides."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

Noun = TypeVar("Noun")


class Kind(NamedTuple):
    """How a field is encoded, and how it is decoded from its message, by its name."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any, str], Any]


class Codec(Generic[Noun]):
    """Converts one noun. `kinds` has the fields that differ on the wire; those in `untold` are on one side alone.

    What `decode` raises is a ValueError that goes on from the name of the message, as in ".token_ids has 5 bytes".
    """

    def __init__(
        self, noun: Callable[..., Noun], names: Sequence[str], message: Callable[..., Any], untold: Sequence[str] = (),
        **kinds: Kind,
    ) -> None:
        told = [name for name in names if name not in untold]
        self._noun, self._message = noun, message
        self._names, self._get = told, _values_of(told)
        self._kinds = [(name, *kind) for name, kind in kinds.items()]
        self._plain = [name for name in told if name not in kinds]
        self._get_plain = _values_of(self._plain)

    def encode(self, noun: Noun, **others: Any) -> Any:
        """Returns the message, with `others` in the fields that the noun doesn't have."""
        # A field that is not there is 0, false or empty to who reads the message.
        told = {name: value for name, value in zip(self._names, self._get(noun), strict=True) if value}
        for name, encode, _ in self._kinds:
            if name in told:
                told[name] = encode(told[name])
        return self._message(**told, **others)

    def decode(self, message: Any) -> Noun:
        """Returns the noun."""
        told = dict(zip(self._plain, self._get_plain(message), strict=True))
        for name, _, decode in self._kinds:
            told[name] = decode(message, name)
        return self._noun(**told)


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Makes a function that returns the values of these fields; attrgetter makes no tuple of a single one."""
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda each: (get(each),)
