"""Why sequences wait."""

from collections.abc import Mapping
from enum import StrEnum


class WaitReason(StrEnum):
    """The reason for which a sequence waits, as the latest plan found it."""

    SLOTS = "slots"
    """As many run as may run at once."""
    BUDGET = "budget"
    """The step has as many tokens as it may have."""
    MEMORY = "memory"
    """There is no KV memory for its tokens, or an older one has waited so long for some that it comes first."""
    QUOTA = "quota"
    """Its tenant holds as much KV memory as it may."""
    PREFIX = "prefix"
    """A running sequence computes the beginning of its prompt, which it will share."""
    ADAPTER = "adapter"
    """Its adapter is not loaded, or its turn has not come."""
    BEAM = "beam"
    """Other beams of its search are not as far as it is."""
    SUSPECT = "suspect"
    """It is suspected of the group's death, or one that is runs alone."""
    OTHERS = "others"
    """It is of the background, and others wait, or may come for what it would take."""
    GROUP = "group"
    """The group is away."""
    NEW = "new"
    """It came after the latest plan."""


KEEPS_BACKGROUND_OUT = (WaitReason.SLOTS, WaitReason.BUDGET, WaitReason.MEMORY)
"""The reasons of others for which none of the background begins to run before them."""
WaitCounts = Mapping[WaitReason, int]
"""How many sequences wait for what; what nobody waits for may be left out."""


def settled(found: WaitCounts, num_waiting: int) -> WaitCounts:
    """Returns why as many wait as wait now, by what the latest plan found: others have come since, or have left."""
    waits, left = {}, num_waiting
    for reason, number in found.items():
        waits[reason] = min(number, left)
        left -= waits[reason]
    return waits | {WaitReason.NEW: left} if left else waits
