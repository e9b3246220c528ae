"""Where a group that runs without a router listens, and which of its shards are on this machine."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import NonNegativeInt, PositiveInt

from penstock.system import addresses
from penstock.system.arguments import InvalidArgument
from penstock.system.setting import Setting, Who
from penstock.system.settings import SHARDS

OPTIONS_OF_PLACE = ("listen", "group_name", "nnodes", "node_rank", "allow_clear_exchange", "has_adapters")
"""The options of which `GroupPlace.from_options` makes the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """Where the shards of a group listen that are on this machine: at consecutive ports from `port` on, in rank order.

    Of `nnodes` machines, each of which has as many shards, this is number `node_rank`.
    """

    name: str
    """The name by which routers know the group, the same on all its machines."""
    host: str
    port: int
    num_shards: int
    """How many shards the whole group has."""
    nnodes: Annotated[PositiveInt, Setting(
        SHARDS, "Machines that the shards are on, each of which has as many; --num-shard counts those of all. They "
        "meet at --master-addr and --master-port, and exchange at the ports behind that.", Who.GROUP)] = 1
    node_rank: Annotated[NonNegativeInt, Setting(
        SHARDS, "Which of these machines this is: 0, which is at --master-addr, to nnodes - 1.", Who.GROUP)] = 0
    allow_clear_exchange: Annotated[bool, Setting(
        SHARDS, "Let GPUs of several machines exchange by NCCL, which encrypts nothing: for networks that nobody else "
        "is on.", Who.GROUP)] = False
    master: tuple[str, int] | None = None
    """Where the launchers of several machines meet; the shards exchange at the ports behind that."""
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

    def exchanges(self, hosts: Sequence[str]) -> list[str]:
        """Returns where each rank meets those of other machines, in rank order; `hosts` are the machines'."""
        assert self.master is not None
        return [addresses.joined(hosts[rank // self.shards_here], self.master[1] + 1 + rank)
                for rank in range(self.num_shards)]

    @classmethod
    def from_options(cls, options: Mapping[str, Any], num_shards: int) -> Self:
        """Makes the place of the command's options. Raises InvalidArgument if they contradict one another."""
        host, port = options["listen"]
        nnodes, node_rank, master = options["nnodes"], options["node_rank"], None
        _check_nodes(options, num_shards)
        if port + num_shards // nnodes - 1 > addresses.MAX_PORT:
            raise InvalidArgument(f"`listen`: {num_shards // nnodes} shards from port {port} on need ports up to "
                                  f"{port + num_shards // nnodes - 1}, the last one is {addresses.MAX_PORT}")
        if nnodes > 1:
            master = (options["master_addr"], options["master_port"])
        name = options["group_name"] or addresses.joined(*(master or (_reached_at(host), port)))
        return cls(name=name, host=host, port=port, num_shards=num_shards, nnodes=nnodes, node_rank=node_rank,
                   master=master, allow_clear_exchange=options["allow_clear_exchange"],
                   has_adapters=options["has_adapters"])


def _check_nodes(options: Mapping[str, Any], num_shards: int) -> None:
    nnodes, node_rank, port = options["nnodes"], options["node_rank"], options["master_port"]
    if node_rank >= nnodes:
        raise InvalidArgument(f"`node_rank` must be < `nnodes`. Given: {node_rank} and {nnodes}")
    if nnodes == 1:
        if options["allow_clear_exchange"]:
            raise InvalidArgument("`allow_clear_exchange` is for several machines: `nnodes` above 1")
        return
    if addresses.is_wildcard(options["master_addr"]):
        raise InvalidArgument(f"`master_addr` must be an address at which the others reach node 0. Given: "
                              f"{options['master_addr']}")
    if num_shards % nnodes:
        raise InvalidArgument(f"`num_shard` counts the shards of all machines, each of which has as many: {num_shards} "
                              f"can't be dealt out to `nnodes` = {nnodes}")
    if port is None:
        raise InvalidArgument("`master_port` is missing: with `nnodes` above 1, the machines meet at `master_addr` and "
                              "that port")
    if port + num_shards > addresses.MAX_PORT:
        raise InvalidArgument(f"`master_port`: the shards exchange at the {num_shards} ports behind {port}, the last "
                              f"one is {addresses.MAX_PORT}")


def _reached_at(host: str) -> str:
    """Returns the name by which others reach a host at which a server listens."""
    return socket.gethostname() if addresses.is_wildcard(host) else host
