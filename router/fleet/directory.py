"""Follows where the shards of the groups are: in a list, a file that may change, or DNS."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator
from typing import Protocol

from penstock.router.fleet.groups_spec import GroupsSpec

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""How often a file is read, or a name looked up."""


class Directory(Protocol):
    """Says where shards are, or should be: at an address none may listen, yet or any more. Each address is that of the
    first of a machine's shards of one group; the others have the next ports."""

    def watch(self) -> AsyncGenerator[frozenset[str], None]:
        """Yields all addresses, HOST:PORT, as soon as they are known, and then whenever they have changed."""
        ...


class SpecDirectory:
    """Follows the addresses that a value of `--groups` stands for. While a file can't be read, as it can't while it is
    being written, or nobody answers for a name, the addresses stay as they were; a name that does not exist, as while
    none of its pods runs, has none."""

    def __init__(self, spec: GroupsSpec) -> None:
        self._spec = spec

    async def watch(self) -> AsyncGenerator[frozenset[str], None]:
        last: frozenset[str] | None = None
        fault = ""
        while True:
            found, told = last, fault
            try:
                found, fault = frozenset(await self._spec.addresses()), ""
            except (OSError, ValueError) as error:
                fault = f"the groups stay as they were: {error}"
                if isinstance(error, socket.gaierror) and error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
                    found, fault = frozenset(), f"no groups are listed: {error}"
            if fault not in ("", told):
                log.error("%s", fault)
            if found is not None and found != last:
                last = found
                yield found
            if self._spec.listed:
                return
            await asyncio.sleep(POLL_SECONDS)
