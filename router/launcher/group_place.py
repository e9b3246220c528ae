"""Where a group that runs without a router listens, and which of its shards are on this machine."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from penstock.router.config import InvalidArgument
from penstock.system import addresses

OPTIONS_OF_PLACE = ("listen", "group_name", "has_adapters")
"""What `GroupPlace.from_options` makes the place of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """Where the shards of a group listen that are on this machine: at consecutive ports from `port` on, in rank order.

    Of `nnodes` machines, each of which has as many shards, this is number `node_rank`.
    """

    name: str
    """What routers know the group by, the same on all its machines."""
    host: str
    port: int
    num_shards: int
    """How many shards the whole group has."""
    nnodes: int = 1
    node_rank: int = 0
    has_adapters: bool = False
    """Whether room for adapters is to be left, for routers that have some."""

    @property
    def shards_here(self) -> int:
        return self.num_shards // self.nnodes

    @property
    def ranks(self) -> range:
        """Which ranks are here."""
        first = self.node_rank * self.shards_here
        return range(first, first + self.shards_here)

    def listens_at(self, rank: int) -> str:
        """Returns the address at which a rank that is here listens."""
        return addresses.joined(self.host, self.port + rank - self.ranks[0])

    def asked_at(self, rank: int) -> str:
        """Returns the address at which this machine's processes reach it."""
        return addresses.joined(addresses.to_ask(self.host), self.port + rank - self.ranks[0])

    @classmethod
    def from_options(cls, options: Mapping[str, Any], num_shards: int) -> Self:
        """Makes the place of the command's options. Raises InvalidArgument if they contradict one another."""
        host, port = options["listen"]
        if port + num_shards - 1 > addresses.MAX_PORT:
            raise InvalidArgument(f"`listen`: {num_shards} shards from port {port} on need ports up to "
                                  f"{port + num_shards - 1}, the last one is {addresses.MAX_PORT}")
        name = options["group_name"] or addresses.joined(_reached_at(host), port)
        return cls(name=name, host=host, port=port, num_shards=num_shards,
                   has_adapters=options["has_adapters"])


def _reached_at(host: str) -> str:
    """Returns what others call a host at which a server listens."""
    return socket.gethostname() if addresses.is_wildcard(host) else host
