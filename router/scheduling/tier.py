"""Tiers: other memories, to which the content of cached blocks moves in place of being forgotten."""

from typing import Protocol

from penstock.router.scheduling.cached_block import Node, Place


class Tier(Protocol):
    """Keeps the content of blocks that the device's memory has no room for.

    Its orders have to be carried out in the order of the calls, and before the rows of the next plan run: a block may
    be written anew in that plan. A tier may make room with `PrefixCache.forget`.
    """

    def keep(self, node: Node) -> Place | None:
        """Orders that the content of a node's block be copied to this tier. Returns the place that it goes to, or None
        if it is to be forgotten."""

    def fetch(self, node: Node, block: int) -> None:
        """Orders that a node's content be copied into a block of the device; the tier keeps it no more."""

    def forget(self, node: Node) -> None:
        """Takes in that a node's content is not wanted any more."""

    def clear(self) -> None:
        """Forgets the content of all nodes, and the orders that nobody has carried out."""


class NoTier:
    """Keeps nothing."""

    def keep(self, node: Node) -> None:
        return None

    def fetch(self, node: Node, block: int) -> None:
        raise AssertionError("nothing was kept")

    def forget(self, node: Node) -> None:
        raise AssertionError("nothing was kept")

    def clear(self) -> None:
        return
