"""The limits of a stream of orders."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Sets the sizes of a shard's slot table and of its largest step, for as long as a stream lasts; `epoch` tells the
    stream from earlier ones."""

    max_slots: int
    max_step_tokens: int
    max_blocks_per_slot: int
    epoch: int = 0
