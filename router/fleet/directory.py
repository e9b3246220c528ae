"""Where the shards of the groups are: listed, in a file that may change, or in DNS."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import yaml  # type: ignore[import-untyped]

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""How often a file or a name is looked up."""
MAX_PORT = 65_535


class DirectoryError(ValueError):
    """Raised for a specification that names no place to look at; the message says what it must be."""


class Address(NamedTuple):
    """The place where the first of a machine's shards of one group listens; the others have the next ports."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `HOST:PORT`, with an IPv6 address in brackets. Raises DirectoryError."""
        host, _, port = text.strip().rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not bare or (":" in bare and bare == host) or not port.isascii() or not port.isdigit() \
                or not 0 < int(port) <= MAX_PORT:
            raise DirectoryError(f"must be HOST:PORT, such as 10.0.0.7:4000. Given: {text.strip()!r}")
        return cls(bare, int(port))

    def target(self, place: int = 0) -> str:
        """Returns the gRPC target of the shard that is `place` ports further."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port + place}"

    def __str__(self) -> str:
        return self.target()


class Directory(Protocol):
    """Says where shards are, or should be: an address may have none that listen, yet or any more."""

    def watch(self) -> AsyncGenerator[frozenset[Address], None]:
        """Yields all addresses, at once if they are known, and then whenever they have changed."""
        ...


def open_directory(specification: str) -> Directory:
    """Returns the directory that is meant by `HOST:PORT,…`, `dns:NAME:PORT` or the path of a YAML file. Raises
    DirectoryError if it is none of them."""
    if specification.startswith("dns:"):
        return Dns(Address.parse(specification.removeprefix("dns:")))
    path = Path(specification)
    if path.suffix in (".yaml", ".yml", ".json"):
        listed = File(path)
        listed.read()
        return listed
    return Listed(frozenset(map(Address.parse, specification.split(","))))


class Listed:
    """Has the addresses that it was given, which never change."""

    def __init__(self, addresses: frozenset[Address]) -> None:
        self._addresses = addresses

    async def watch(self) -> AsyncGenerator[frozenset[Address], None]:
        yield self._addresses


class File:
    """Reads a YAML or JSON file with a list of addresses, anew whenever it has changed. While it can't be read, as it
    can't while it is being written, the addresses stay as they were."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> frozenset[Address]:
        """Returns the addresses. Raises DirectoryError, which names what is wrong with the file."""
        try:
            found = yaml.safe_load(self._path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DirectoryError(f"{self._path} can't be read: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise DirectoryError(f"{self._path} is no YAML: {error}") from error
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise DirectoryError(f"{self._path} must be a list of addresses, such as `- 10.0.0.7:4000`")
        try:
            return frozenset(map(Address.parse, found))
        except DirectoryError as error:
            raise DirectoryError(f"{self._path}: an address {error}") from error

    async def watch(self) -> AsyncGenerator[frozenset[Address], None]:
        last: frozenset[Address] | None = None
        fault = ""
        while True:
            try:
                found, fault = self.read(), ""
            except DirectoryError as error:
                if str(error) != fault:
                    log.error("the groups stay as they were: %s", error)
                fault = str(error)
            else:
                if found != last:
                    last = found
                    yield found
            await asyncio.sleep(POLL_SECONDS)


class Dns:
    """Looks a name up that has an address record for each machine, as a headless service of Kubernetes has. A name that
    is not found, as while none of its pods runs, has no addresses; while nobody answers they stay as they were."""

    def __init__(self, name: Address) -> None:
        self._name = name

    async def watch(self) -> AsyncGenerator[frozenset[Address], None]:
        last = None
        while True:
            found = await self._look_up()
            if found is not None and found != last:
                last = found
                yield found
            await asyncio.sleep(POLL_SECONDS)

    async def _look_up(self) -> frozenset[Address] | None:
        """Returns the addresses; None if nobody could be asked."""
        name, port = self._name
        try:
            records = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            return frozenset() if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA) else None
        except OSError:
            return None
        return frozenset(Address(str(where[0]), port) for *_, where in records)
