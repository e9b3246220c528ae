"""The state with which a slot begins a sequence."""

from dataclasses import dataclass

from penstock.contract.ids import Ids
from penstock.contract.sampling import Sampling


@dataclass(frozen=True, slots=True)
class InitialState:
    """Tells a shard what it must know before a slot's first row. `history_ids` is empty unless the sampling reads it.

    `trace` names the span that steps with this sequence are linked to; empty if its request is not traced. `adapter` is
    the number of a loaded adapter, or 0.
    """

    sampling: Sampling
    prompt_length: int
    history_ids: Ids = ()
    trace: bytes = b""
    adapter: int = 0
