"""Things that a sequence brings to the shards beside its tokens: an adapter, the trace of its request, an image."""

from collections.abc import Iterable
from dataclasses import dataclass

ADAPTER = "adapter"
"""The kind whose value is the number of a loaded adapter, a little-endian uint32."""
TRACE = "trace"
"""The kind whose value names the span of a traced request: the trace's id, 16 bytes, then the span's, 8."""


@dataclass(frozen=True, slots=True)
class SideInput:
    """Holds something of the kind `name` that a sequence brings beside its tokens. The shards get the `value` alone.

    `identity` names all of it that keys and values depend on: sequences of different identities share no blocks, and
    get different answers' ids. It is empty if nothing depends on it.
    """

    name: str
    value: bytes
    identity: bytes = b""


def namespace_of(side_inputs: Iterable[SideInput], salt: str = "") -> str:
    """Returns the name that all sequences have in common whose blocks may be shared; empty if nothing but tokens
    decides that. A `salt` keeps sequences apart that could share blocks."""
    names = sorted(f"{each.name}={each.identity.hex()}" for each in side_inputs if each.identity)
    return " ".join([*names, f"salt {salt}"] if salt else names)


def encode_number(number: int) -> bytes:
    return number.to_bytes(4, "little")


def decode_number(value: bytes) -> int:
    return int.from_bytes(value, "little")


def adapter_of(side_inputs: Iterable[SideInput]) -> int:
    """Returns the number of the adapter among them; 0 if there is none."""
    return next((decode_number(each.value) for each in side_inputs if each.name == ADAPTER), 0)
