"""The state with which a slot begins a sequence."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.contract.ids import Ids
from penstock.contract.sampling import Sampling


@dataclass(frozen=True, slots=True)
class InitialState:
    """Tells a shard what it must know before a slot's first row. `history_ids` is empty unless the sampling reads it.

    `side_inputs` has the value of each `SideInput` by its name.
    """

    sampling: Sampling
    prompt_length: int
    history_ids: Ids = ()
    side_inputs: Mapping[str, bytes] = field(default_factory=dict)
