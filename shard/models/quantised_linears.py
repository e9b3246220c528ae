"""Which linears of a quantised checkpoint are stored in its format, and which as plain numbers."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from penstock.shard.models.keys import Keys
from penstock.shard.models.names import TensorNames
from penstock.shard.weights.dense import DENSE
from penstock.shard.weights.format import FormatOf, WeightFormat
from penstock.system.patterns import WHOLE, Pattern, PatternError, check_work

INPUTS = "--activations says what the inputs of linears are multiplied as"
UNFOLLOWED = {
    "act_bits": INPUTS,
    "activation_scale_ub": INPUTS,
    "activation_scheme": INPUTS,
    "bnb_4bit_compute_dtype": "linears compute in the model's own dtype, or --dtype",
    "input_activations": INPUTS,
    "kv_cache_scheme": "--kv-cache-dtype says what keys and values are stored as",
    "llm_int8_has_fp16_weight": "weights keep their 8 bits",
    "llm_int8_threshold": "columns of outliers are rounded as all others are",
    "output_activations": "the outputs of linears are not rounded",
}
"""Keys that may be in any quantization_config and are not followed, each with the reason, which is told at start."""


def all_but(kept: Callable[[str], bool], format_: WeightFormat) -> FormatOf:
    return lambda linear: DENSE if kept(linear) else format_


def is_kept(keys: Keys, names: TensorNames, *lists: str, keeps_head: bool = False) -> Callable[[str], bool]:
    """Returns the function that tells whether a linear is stored as plain numbers, as transformers decides it.

    lists       the keys that may hold names, or patterns of names, of such linears; where there is none the head is one
    keeps_head  it always is
    """
    given = [text.removeprefix("re:") for key in lists for text in texts(keys, key)]  # as AutoFP8 marks them
    check_patterns(keys, lists[0], given)
    is_given = any(keys.get(key) is not None for key in lists)
    patterns = [(text, pattern_of(keys, lists[0], text, r"(?:\.|\z)"), pattern_of(keys, lists[0], text, WHOLE))
                for text in given]
    always = {names.embedding} if is_given and not keeps_head else {names.embedding, names.head}

    def is_kept(linear: str) -> bool:
        if linear in always:
            return True
        # What a pattern matches ends before one of the name's dots, at its end, or behind a dot.
        dots = [at + 1 for at, character in enumerate(linear) if character == "."]
        return any(linear.endswith(text) or pattern.matches(linear)
                   or ("$" not in text and any(whole.matches(linear, dot) for dot in dots))
                   for text, pattern, whole in patterns)

    return is_kept


def texts(keys: Keys, key: str) -> list[str]:
    """Returns the list of texts under a key; it may be absent."""
    values: Any = keys.get(key)
    values = [] if values is None else values
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise keys.error(key, "a list of names")
    return values


def check_patterns(keys: Keys, key: str, patterns: Collection[str]) -> None:
    """Raises ModelConfigError for so many patterns that they would take long to compile."""
    try:
        check_work(patterns)
    except PatternError as error:
        raise keys.error(key, f"less ({error})") from None


def pattern_of(keys: Keys, key: str, text: str, end: str = "") -> Pattern:
    """Reads a pattern of a file, behind which comes `end`. Raises ModelConfigError for what is none, or can't be
    matched in linear time."""
    try:
        return Pattern(text, end)
    except PatternError as error:
        raise keys.error(key, f"names or regular expressions ({error})") from None


def check_known(keys: Keys, known: Iterable[str], without_effect: Sequence[str]) -> None:
    """Raises ModelConfigError for a key that might change what the weights mean, by its name. A key that says no,
    nothing or none changes nothing.

    without_effect: those that are known to change nothing, whatever they say; those of UNFOLLOWED are told elsewhere
    """
    for name in sorted(keys.names.difference(known, without_effect, UNFOLLOWED)):
        if keys.get(name) not in (None, False, "", [], {}):
            raise keys.error(name, "no such key, for what it changes is not known")
