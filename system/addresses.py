"""Addresses of TCP: HOST:PORT, where an IPv6 address has brackets around it."""

import ipaddress
import re

MAX_PORT = 2**16 - 1
_HOST = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?"
_ADDRESS = re.compile(rf"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>{_HOST})):(?P<port>\d{{1,5}})")


def split(address: str) -> tuple[str, int]:
    """Returns the host and the port of HOST:PORT. Raises ValueError for what is no such address."""
    found = _ADDRESS.fullmatch(address)
    if not found or not 1 <= int(found["port"]) <= MAX_PORT:
        raise ValueError(f"{address!r} is no HOST:PORT with a port from 1 to {MAX_PORT}, such as 10.0.0.5:4000 or "
                         "[fd00::5]:4000")
    if found["v6"]:
        try:
            ipaddress.IPv6Address(found["v6"])
        except ValueError:
            raise ValueError(f"{address!r}: {found['v6']} is no IPv6 address") from None
    return found["v6"] or found["host"], int(found["port"])


def joined(host: str, port: int) -> str:
    """Returns HOST:PORT, as `split` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Tells whether bytes sent to a host never leave this machine. A name other than localhost may mean any."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_wildcard(host: str) -> bool:
    """Returns whether a server that listens at this host listens at every address of its machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def to_ask(host: str) -> str:
    """Returns where a process of the same machine reaches a server that listens at this host."""
    if not is_wildcard(host):
        return host
    return "::1" if ":" in host else "127.0.0.1"


def shifted(address: str, number: int) -> str:
    """Returns the address that is `number` ports further."""
    host, port = split(address)
    return joined(host, port + number)
