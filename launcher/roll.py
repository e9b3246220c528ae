"""The command `penstock roll`: starts one group after the other anew, without an answer that is lost or changed."""

import asyncio
import re
import shlex
import subprocess
import time
from functools import partial
from pathlib import Path

import click

from penstock.launcher.drain import TIMEOUT, empty, telling_of_interrupts
from penstock.launcher.known_groups import (
    TLS_OPTIONS,
    KnownGroup,
    find,
    groups_option,
    listed,
    refuse_twins,
    tls_of,
    until,
)
from penstock.router.fleet.errors import FleetError
from penstock.router.fleet.groups_spec import GroupsSpec
from penstock.system import addresses
from penstock.system.arguments import InvalidArgument
from penstock.system.wire_tls import WireTls

FIELDS = ("address", "host", "group", "addresses", "hosts")
_FIELD = re.compile(r"(?<!\$)\{(\w+)\}")
"""A field in a command; `${NAME}` is the shell's."""


def roll(
    groups: str | None, restart: str, timeout: float, dry_run: bool, shard_tls_ca: Path | None,
    shard_tls_cert: Path | None, shard_tls_key: Path | None, shard_tls_name: str,
) -> None:
    """Start all groups anew, one after the other: each drains, is restarted by a command once it is empty, and has to
    answer anew before the next one drains.

    The first failure ends the command: what was not reached runs as before, and the group that failed goes on draining.
    """
    if groups is None:
        raise InvalidArgument("`groups` is missing")
    check(restart)
    tls = tls_of(shard_tls_ca, shard_tls_cert, shard_tls_key, shard_tls_name)
    asyncio.run(_roll(GroupsSpec.parse(groups), restart, timeout, dry_run, tls))


def check(restart: str) -> None:
    """Raises InvalidArgument if a command names what it can't be told."""
    for field in _FIELD.findall(restart):
        if field not in FIELDS:
            raise InvalidArgument(f"`restart`: there is no {{{field}}}, but "
                                  f"{', '.join(f'{{{known}}}' for known in FIELDS)}")


def filled(restart: str, group: KnownGroup) -> str:
    """Returns the command for a group, in which values are quoted for the shell."""
    hosts = [addresses.split(place)[0] for place in group.places]
    values = {"address": shlex.quote(group.address), "host": shlex.quote(hosts[0]), "group": shlex.quote(group.name),
              "addresses": shlex.join(group.places), "hosts": shlex.join(hosts)}
    return _FIELD.sub(lambda found: values[found[1]], restart)


async def _roll(spec: GroupsSpec, restart: str, seconds: float, is_dry: bool, tls: WireTls | None) -> None:
    found, silent = await find(spec, tls)
    if silent or not found:
        raise click.ClickException(f"all groups must answer before the first one drains:{listed(silent)}"
                                   if silent else "there are no groups")
    if drained := [group for group in found if group.is_draining]:
        raise click.ClickException(f"{drained[0]} drains already: start it anew, or `penstock drain --undo`")
    refuse_twins(found)
    if len(found) == 1:
        raise click.ClickException(f"{found[0]} is the only group: none would take what it computes")
    for number, group in enumerate(found, 1):
        command = filled(restart, group)
        if is_dry:
            click.echo(f"{number}/{len(found)} {group}: drain, then {command}")
            continue
        with telling_of_interrupts(str(group), group.address):
            await _start_anew(group, f"{number}/{len(found)} {group}", command, spec, seconds, tls)


async def _start_anew(
    group: KnownGroup, title: str, command: str, spec: GroupsSpec, seconds: float, tls: WireTls | None
) -> None:
    """Empties a group, runs the command for it, and waits until it is back. Raises click.ClickException if that
    fails."""
    began = time.monotonic()
    click.echo(f"{title}: draining")
    try:
        await empty(group.address, tls, seconds)
    except FleetError as error:
        raise click.ClickException(f"{group} can't be drained: {error}") from error
    click.echo(f"{title}: empty after {time.monotonic() - began:.1f} s; {command}")
    await _restart(command, group)
    if not await until(partial(_is_back, spec, tls, group.name), seconds):
        raise click.ClickException(f"{group} does not answer anew within {seconds:g} s after its restart")
    click.echo(f"{title}: back after {time.monotonic() - began:.1f} s")


async def _restart(command: str, group: KnownGroup) -> None:
    process = await asyncio.create_subprocess_shell(command, stdin=subprocess.DEVNULL)
    if status := await process.wait():
        raise click.ClickException(f"{group}: the command ended with {status}; the group goes on draining, if it runs "
                                   f"(penstock drain {group.address} --undo): {command}")


async def _is_back(spec: GroupsSpec, tls: WireTls | None, name: str) -> bool:
    """Tells whether a group of this name takes sequences: what drained does not, so it is another start."""
    try:
        found, _ = await find(spec, tls)
    except click.ClickException:  # the directory may be away for a moment, as its only pod may
        return False
    return any(group.name == name and not group.is_draining for group in found)


command = click.Command(
    "roll", callback=roll, help=roll.__doc__,
    params=[groups_option(" Required."), TIMEOUT, *TLS_OPTIONS,
            click.Option(["--restart"], required=True, metavar="COMMAND",
                         help="What starts a group anew, for the shell, such as 'ssh {host} systemctl restart "
                              "penstock-group'. {address}, {host} and {group} are those of its rank 0; {addresses} and "
                              "{hosts} those of all its machines."),
            click.Option(["--dry-run"], is_flag=True, help="Only show what would be done.")])
