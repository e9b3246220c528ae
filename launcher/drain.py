"""The command `penstock drain`: has routers move what a group computes to others, or lets it take sequences again."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from click.core import ParameterSource

from penstock.launcher.known_groups import (
    TLS_OPTIONS,
    client_of,
    find,
    groups_option,
    listed,
    refuse_twins,
    tls_of,
)
from penstock.launcher.leaving import until_empty
from penstock.router.fleet.errors import FleetError
from penstock.router.fleet.groups_spec import GroupsSpec
from penstock.system import addresses
from penstock.system.arguments import InvalidArgument
from penstock.system.wire_tls import WireTls


def drain(
    group: str, groups: str | None, undo: bool, timeout: float, shard_tls_ca: Path | None,
    shard_tls_cert: Path | None, shard_tls_key: Path | None, shard_tls_name: str,
) -> None:
    """Have GROUP drain: routers send it nothing more, and move what it computes to other groups.

    GROUP is the HOST:PORT of the shard of rank 0, or, with --groups, the group's name. The command ends when the group
    is empty. The group drains until it is started anew, or until --undo.
    """
    if undo and click.get_current_context().get_parameter_source("timeout") is ParameterSource.COMMANDLINE:
        raise InvalidArgument("`timeout` is not for `undo`, which waits for nothing")
    tls = tls_of(shard_tls_ca, shard_tls_cert, shard_tls_key, shard_tls_name)
    asyncio.run(_drain(group, groups, undo, timeout, tls))


async def _drain(group: str, groups: str | None, undo: bool, seconds: float, tls: WireTls | None) -> None:
    address = await address_of(group, groups, tls)
    try:
        if undo:
            async with client_of(address, tls) as client:
                await client.drain(False)
            click.echo(f"{group} takes sequences again")
            return
        began = time.monotonic()
        with telling_of_interrupts(group, address):
            await empty(address, tls, seconds)
        click.echo(f"{group} is empty after {time.monotonic() - began:.1f} s; it drains until it is started anew, or "
                   "until --undo")
    except FleetError as error:
        raise click.ClickException(str(error)) from error


async def empty(address: str, tls: WireTls | None, seconds: float) -> None:
    """Has the group drain whose rank 0 is at an address, and waits until it is empty. Raises FleetError if it can't be
    asked, and click.ClickException if it still computes after so many seconds."""
    async with client_of(address, tls) as client:
        await client.drain(True)
        try:
            await asyncio.wait_for(until_empty(client), seconds)
        except TimeoutError:
            raise click.ClickException(f"{address} still computes after {seconds:g} s, and goes on draining: is there "
                                       "another group that takes its sequences?") from None
        except FleetError as error:
            raise FleetError(f"{error}; it was told to drain: penstock drain {address} --undo") from error


@contextmanager
def telling_of_interrupts(group: str, address: str) -> Iterator[None]:
    """Says, where Ctrl-C ends the block, that the group goes on draining, and how to undo that."""
    try:
        yield
    except asyncio.CancelledError:
        click.echo(f"{group} goes on draining: penstock drain {address} --undo", err=True)
        raise


async def address_of(group: str, groups: str | None, tls: WireTls | None) -> str:
    """Returns the address of a group's rank 0. Raises click.ClickException if there is no such group."""
    if groups is None:
        try:
            addresses.split(group)
        except ValueError as error:
            raise InvalidArgument(f"`group`: {error}; names are known with --groups alone") from error
        return group
    found, silent = await find(GroupsSpec.parse(groups), tls)
    matching = [each for each in found if group in (each.name, *each.places)]
    refuse_twins(matching)
    if matching:
        return matching[0].address
    names = ", ".join(map(str, found)) or "none"
    raise click.ClickException(f"no group {group} answers; those that do: {names}{listed(silent)}")


TIMEOUT = click.Option(["--timeout"], type=click.FloatRange(0, min_open=True), default=600.0, show_default=True,
                       help="Seconds to wait for a group, each time.")

command = click.Command(
    "drain", callback=drain, help=drain.__doc__,
    params=[click.Argument(["group"], metavar="GROUP"), groups_option(" Then GROUP may be a name."),
            click.Option(["--undo"], is_flag=True, help="Let the group take sequences again."), TIMEOUT, *TLS_OPTIONS])
