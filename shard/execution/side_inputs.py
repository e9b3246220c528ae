"""The kinds of things that a sequence may bring beside its tokens, as the shards read them."""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.contract.pooling import POOLING, Pooling
from penstock.contract.side_inputs import ADAPTER, TRACE, decode_number

NUMBER_BYTES, TRACE_BYTES = 4, 24


def _read_adapter(value: bytes) -> int:
    if len(value) != NUMBER_BYTES:
        raise ValueError(f" has {len(value)} bytes, a number has {NUMBER_BYTES}")
    return decode_number(value)


def _read_trace(value: bytes) -> bytes:
    if len(value) != TRACE_BYTES:
        raise ValueError(f" has {len(value)} bytes, a trace has {TRACE_BYTES}")
    return value


KINDS: dict[str, Callable[[bytes], Any]] = {
    ADAPTER: _read_adapter, POOLING: Pooling.decode, TRACE: _read_trace}
"""For each kind the function that reads a value of it; it raises ValueError with words that go on from the name."""


def read_side_inputs(values: Mapping[str, bytes]) -> dict[str, Any]:
    """Returns the values as their kinds read them. Raises ValueError for a kind that is not known or a value that can't
    be read, with words that go on from the name of the initial state."""
    read = {}
    for name, value in values.items():
        if name not in KINDS:
            raise ValueError(f".side_inputs has {name!r}, known are {', '.join(map(repr, KINDS))}")
        try:
            read[name] = KINDS[name](value)
        except ValueError as error:
            raise ValueError(f".side_inputs[{name!r}]{error}") from error
    return read
