"""Which linears of a quantised checkpoint are stored in its format, and which as plain numbers."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.shard.models.keys import Keys
from penstock.shard.models.names import TensorNames
from penstock.shard.weights.dense import DENSE
from penstock.shard.weights.format import FormatOf, WeightFormat


def all_but(kept: Callable[[str], bool], format_: WeightFormat) -> FormatOf:
    return lambda linear: DENSE if kept(linear) else format_


def is_kept(keys: Keys, names: TensorNames, *lists: str, keeps_head: bool = False) -> Callable[[str], bool]:
    """Returns what tells whether a linear is stored as plain numbers, as transformers decides it.

    lists       the keys that may hold names, or patterns of names, of such linears; where there is none the head is one
    keeps_head  it always is
    """
    patterns = [text.removeprefix("re:") for key in lists for text in texts(keys, key)]  # as AutoFP8 marks them
    is_given = any(keys.get(key) is not None for key in lists)
    # A pattern matches a name's beginning or all of it, or is its end.
    compiled = [(pattern_of(keys, lists[0], rf"(?:{pattern})(?:(?<=\.)|(?=\.|$))"), pattern) for pattern in patterns]
    always = {names.embedding} if is_given and not keeps_head else {names.embedding, names.head}
    return lambda linear: linear in always or any(
        expression.match(linear) or linear.endswith(pattern) for expression, pattern in compiled)


def texts(keys: Keys, key: str) -> list[str]:
    """Returns the list of texts under a key; it may be absent."""
    values: Any = keys.get(key)
    values = [] if values is None else values
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise keys.error(key, "a list of names")
    return values


def pattern_of(keys: Keys, key: str, pattern: str) -> re.Pattern[str]:
    """Compiles a pattern of a file. Raises ModelConfigError for what is none, and for repetitions of repetitions, which
    may take longer than anybody waits."""
    if re.search(r"[+*}][^()]*\)[+*{]", pattern):
        raise keys.error(key, "patterns without repetitions of what is repeated")
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise keys.error(key, "names or regular expressions") from None


def check_known(keys: Keys, known: Iterable[str], without_effect: Sequence[str]) -> None:
    """Raises ModelConfigError for a key that might change what the weights mean, by its name. A key that says no,
    nothing or none changes nothing.

    without_effect: those that are known to change nothing, whatever they say
    """
    for name in sorted(keys.names.difference(known, without_effect)):
        if keys.get(name) not in (None, False, "", [], {}):
            raise keys.error(name, "no such key, for what it changes is not known")
