"""A cached block: the tokens whose keys and values it has, and the place where these are."""

from dataclasses import dataclass, field
from enum import Enum

Key = tuple[int | str, ...]
"""The tokens of a block; the key of a sequence's first block begins with its namespace (adapter, tenant, image)."""


class Place(Enum):
    """Tells which memory has a block's keys and values."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


@dataclass(slots=True, eq=False)
class Node:
    """A cached block, with its tokens and, through its parents, those before them. The root holds no block.

    `depth` counts the blocks up to this one and with it. `block` is -1 while the place is not the device.
    """

    key: Key
    block: int
    depth: int
    parent: "Node | None"
    children: dict[Key, "Node"] = field(default_factory=dict)
    place: Place = Place.DEVICE

    def on_device(self) -> "Node":
        """Returns the last block on the way to this one that the device has; those before it are there too."""
        node = self
        while node.place is not Place.DEVICE:
            assert node.parent is not None
            node = node.parent
        return node
