"""Where the groups of a router are: a list of addresses, a name that has several addresses, or a file of addresses."""

import asyncio
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from penstock.system import addresses

FORMS = "HOST:PORT,HOST:PORT, dns:NAME:PORT, or the path of a YAML file with a list `groups` of HOST:PORT"
DNS = "dns:"


@dataclass(frozen=True, slots=True)
class GroupsSpec:
    """Holds one of the three forms: `listed` addresses, the `name` and port of one that stands for many, or a `file`.
    """

    listed: tuple[str, ...] = ()
    name: tuple[str, int] | None = None
    file: Path | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a value of `--groups`. Raises ValueError, which says what is wrong with it."""
        text = text.strip()
        if text.startswith(DNS):
            return cls(name=addresses.split(text.removeprefix(DNS)))
        parts = [part.strip() for part in text.split(",")]
        if "/" in text or re.search(r"\.ya?ml$", text):
            return cls(file=Path(text).absolute())
        if not any(":" in part for part in parts):
            raise ValueError(f"{text!r} is none of {FORMS}")
        return cls(listed=_checked(parts))

    async def addresses(self) -> tuple[str, ...]:
        """Returns the addresses that there are now, each once, sorted if they come from a name. Raises OSError if the
        name or the file can't be read, and ValueError if the file holds something else."""
        if self.name is not None:
            host, port = self.name
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return tuple(sorted({addresses.joined(str(each[4][0]), port) for each in found}))
        return self.listed if self.file is None else read(self.file)


def read(file: Path) -> tuple[str, ...]:
    """Returns the addresses in a file. Raises OSError if it can't be read, and ValueError, which names it, if it holds
    something else."""
    import yaml  # type: ignore[import-untyped]  # which few routers need

    try:
        content = yaml.safe_load(file.read_bytes())
        found = content.get("groups") if isinstance(content, dict) and set(content) == {"groups"} else None
        if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
            raise ValueError("it must have one key, `groups`, with a list of HOST:PORT, each in quotes if it has "
                             "brackets")
        return _checked(found)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: {error}") from error


def _checked(found: list[str]) -> tuple[str, ...]:
    for address in found:
        addresses.split(address)
    if twice := sorted({address for address in found if found.count(address) > 1}):
        raise ValueError(f"{twice[0]} is named more than once")
    return tuple(found)
