"""How a router comes to its groups: the launcher's own shards, or those that a directory lists."""

import asyncio
from dataclasses import replace
from functools import partial

from penstock.contract.facts import Facts
from penstock.router.adapters.registry import Registry
from penstock.router.config import RouterConfig
from penstock.router.engine.engine import Engine
from penstock.router.fleet.client import ShardClient
from penstock.router.fleet.directory import SpecDirectory
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.fleet.groups_spec import GroupsSpec
from penstock.router.groups.groups import Groups
from penstock.router.groups.roster import Roster
from penstock.router.limits import LimitError, Limits
from penstock.router.metrics.metrics import Metrics


class Finding:
    """Finds the groups that the settings name. It must be made in the event loop; `first` comes first, then `groups`,
    and `close` at the end."""

    def __init__(self, config: RouterConfig) -> None:
        self._config = config
        self._own: GrpcFleet | None = None
        self._roster: Roster | None = None
        self._watching: asyncio.Task[None] | None = None
        if config.groups is None:
            self._own = GrpcFleet(config.shard_sockets)
        else:
            tls = config.shard_tls
            self._roster = Roster(SpecDirectory(GroupsSpec.parse(config.groups)), partial(ShardClient, tls=tls),
                                  partial(GrpcFleet, tls=tls))
            self._watching = asyncio.create_task(self._roster.watch(), name="groups")

    async def first(self) -> Facts:
        """Waits for the first group, of several that are there one with room for what the settings ask for, and
        returns its facts."""
        if self._own is not None:
            self._first = await self._own.describe()
        else:
            assert self._roster is not None
            self._first = await self._roster.first(self._has_room)
        return within(self._first, self._config)

    def _has_room(self, facts: Facts) -> bool:
        try:
            Limits.resolve(self._config, within(facts, self._config))
        except LimitError:
            return False
        return True

    def groups(self, limits: Limits, metrics: Metrics, adapters: Registry) -> Groups:
        """Makes an engine for the first group, and for each that is found from now on."""
        def engine(fleet: GrpcFleet, facts: Facts) -> Engine:
            config, memory_tokens = self._config, facts.capacity
            facts, is_own = within(facts, config), self._own is not None
            limits = replace(Limits.resolve(config, facts), memory_tokens=memory_tokens)
            return Engine(fleet, facts, limits, metrics, config.pipeline_depth, config.max_shard_downtime, adapters,
                          name=facts.group, is_one_of_many=not is_own)

        if self._own is not None:
            groups = Groups(limits, metrics, adapters)
            groups.add(engine(self._own, self._first))
            return groups
        assert self._roster is not None
        groups = Groups(limits, metrics, adapters, background=self._watch)
        self._roster.begin(groups, engine)
        return groups

    async def _watch(self) -> None:
        assert self._watching is not None
        await self._watching

    async def close(self) -> None:
        """Ends the connections to the groups."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._own is not None:
            await self._own.close()


def within(facts: Facts, config: RouterConfig) -> Facts:
    """Returns the facts with no more KV blocks than `--max-batch-total-tokens` allows."""
    if config.max_batch_total_tokens is None:
        return facts
    return facts.within(config.max_batch_total_tokens // facts.block_size)
