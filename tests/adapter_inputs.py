"""Adapters as side inputs of sequences."""

from penstock.contract.initial_state import InitialState
from penstock.contract.side_inputs import ADAPTER, SideInput, decode_number, encode_number


def adapter_value(number: int) -> dict[str, bytes]:
    """The side inputs of an initial state that names an adapter; 0 is none."""
    return {ADAPTER: encode_number(number)} if number else {}


def adapter_input(number: int) -> tuple[SideInput, ...]:
    """The side inputs of a sequence with an adapter; 0 is none."""
    return (SideInput(ADAPTER, encode_number(number), str(number).encode()),) if number else ()


def number_in(state: InitialState) -> int:
    """The number of the adapter that an initial state names, or 0."""
    return decode_number(state.side_inputs.get(ADAPTER, b""))
