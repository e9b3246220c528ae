"""The crowd that a request found before it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """The crowd that a request found in its group when it came, and how much of everything the group would have had to
    have to admit it at once, with all that were before it."""

    num_before: int
    """How many waited that come before it."""
    num_running: int
    num_slots: int
    slots_needed: int
    num_blocks: int
    num_held: int
    """How many blocks were held by others."""
    blocks_needed: int
    step_tokens_needed: int
    """The tokens of a step that computes all prompts that were there to their ends, beside all rows."""
    adapter_budget: int
    """In bytes."""
    adapters_needed: int
    """The bytes of its own adapter, of those that others waited for, and of those on the shards; 0 if it needs none, or
    its own is loaded."""
