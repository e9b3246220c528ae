"""The groups that run elsewhere, found by asking each address that may be one."""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.launcher.options import OPTIONS
from penstock.router.fleet.errors import FleetError
from penstock.router.fleet.groups_spec import GroupsSpec
from penstock.system import addresses, child_environment, wire_tls
from penstock.system.arguments import InvalidArgument
from penstock.system.wire_tls import WireTls

if TYPE_CHECKING:
    from penstock.router.fleet.client import Health, ShardClient

ASK_SECONDS = 5.0
"""How long an address may take to answer."""
POLL_SECONDS = 0.2
TLS_OPTIONS = [option for option in OPTIONS
               if option.name in ("shard_tls_ca", "shard_tls_cert", "shard_tls_key", "shard_tls_name")]
GROUPS_HELP = ("The groups: HOST:PORT,HOST:PORT, or dns:NAME:PORT for all addresses of a name, or a YAML file with a "
               "list `groups` of HOST:PORT, as for `penstock serve`.")


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group that answers: `places` are its addresses, one on each of its machines, that of rank 0 first."""

    name: str
    places: tuple[str, ...]
    is_draining: bool

    @property
    def address(self) -> str:
        return self.places[0]

    def __str__(self) -> str:
        return self.name if self.name == self.address else f"{self.name} ({self.address})"


def tls_of(ca: Path | None, cert: Path | None, key: Path | None, name: str) -> WireTls | None:
    """Returns the TLS of the options. Raises InvalidArgument if the files can't be used."""
    try:
        tls = WireTls.of((ca, cert, key), name)
        if tls is not None:
            tls.check()
    except ValueError as error:
        raise InvalidArgument(f"`shard_tls_ca`, `shard_tls_cert` and `shard_tls_key`: {error}") from error
    if tls is None and name != wire_tls.NAME:
        raise InvalidArgument(wire_tls.NAME_ALONE)
    return tls


async def find(spec: GroupsSpec, tls: WireTls | None) -> tuple[list[KnownGroup], list[str]]:
    """Returns the groups whose rank 0 answers, in the order of the addresses, and why others of the addresses do not.

    Raises click.ClickException if the addresses can't be had.
    """
    try:
        places = await spec.addresses()
    except (OSError, ValueError) as error:
        raise click.ClickException(f"the addresses of the groups can't be had: {error}") from error
    found = await asyncio.gather(*(_ask(place, tls) for place in places))
    silent = [each for each in found if isinstance(each, str)]
    shards = [each for each in found if not isinstance(each, str)]
    groups: list[KnownGroup] = []
    for place, rank, name, health in shards:
        if rank == 0:
            others = sorted((rank, place) for place, rank, other, _ in shards if other == name and rank)
            groups.append(KnownGroup(name, (place, *(place for _, place in others)), health.is_draining))
    return groups, silent


@asynccontextmanager
async def client_of(address: str, tls: WireTls | None) -> "AsyncIterator[ShardClient]":
    """Connects to the shard at an address while the block runs."""
    child_environment.prepare_grpc()
    # Not at the top, where the import of gRPC would delay the answer to `--help`.
    from penstock.router.fleet.client import ShardClient

    client = ShardClient(address, tls)
    try:
        yield client
    finally:
        await client.close()


async def until(is_so: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Asks until something is so; tells whether it was within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await is_so():
                    return True
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        return False


def groups_option(more: str = "") -> click.Parameter:
    """Returns the option that says where groups are, with more of what it is for."""
    option = copy.copy(next(option for option in OPTIONS if option.name == "groups"))
    assert isinstance(option, click.Option)
    option.help = GROUPS_HELP + more
    return option


def refuse_twins(groups: Sequence[KnownGroup]) -> None:
    """Raises click.ClickException if several groups have one name, by which they are told apart."""
    for group in groups:
        twins = [other.address for other in groups if other.name == group.name]
        if len(twins) > 1:
            raise click.ClickException(f"{' and '.join(twins)} are all of group {group.name}: name one address of each "
                                       "group, and give each group a --group-name of its own")


def listed(silent: Sequence[str]) -> str:
    """Returns the complaints of addresses as lines of a message."""
    return "".join(f"\n  {each}" for each in silent)


async def _ask(place: str, tls: WireTls | None) -> "tuple[str, int, str, Health] | str":
    """Returns the rank and the group of the shard at an address, and its health; or why it does not answer."""
    try:
        addresses.split(place)
        async with client_of(place, tls) as client:
            health = await client.health(ASK_SECONDS)
            facts = await asyncio.wait_for(client.describe(), ASK_SECONDS)
            return place, facts.rank, facts.facts.group, health
    except (FleetError, TimeoutError) as error:
        return str(error) or f"{place} does not answer"
