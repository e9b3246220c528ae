"""Several machines on one: network namespaces, each with one wire to a bridge, which can be cut. The bridge has a
namespace of its own, so that the firewall of this machine, as a container engine sets it, does not reach it."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

BRIDGE = "bridge"


@dataclass(frozen=True, slots=True)
class Machine:
    """A network namespace with one address."""

    name: str
    wire: str
    address: str

    def command(self, command: Sequence[str]) -> list[str]:
        """Returns what runs a command on this machine."""
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self) -> None:
        """Cuts the wire: what is sent is lost, and nobody is told."""
        _ip("-n", _hub(), "link", "set", self.wire, "nomaster")

    def mend(self) -> None:
        _ip("-n", _hub(), "link", "set", self.wire, "master", BRIDGE)


@contextmanager
def machines(number: int) -> Iterator[list[Machine]]:
    """Makes machines that reach one another and this one, whose address is 10.77.0.254. Skips the test where this user
    may not have them."""
    tag = os.getpid()
    hub, here = _hub(), f"ph{tag}"
    made = [Machine(f"penstock-{tag}-{index}", f"pw{tag}-{index}", f"10.77.0.{index + 1}") for index in range(number)]
    try:
        try:
            _ip("netns", "add", hub)
            _ip("-n", hub, "link", "add", BRIDGE, "type", "bridge")
            _ip("-n", hub, "link", "set", BRIDGE, "up")
            _ip("link", "add", here, "type", "veth", "peer", "name", "here", "netns", hub)
            _ip("addr", "add", "10.77.0.254/24", "dev", here)
            _ip("link", "set", here, "up")
            _ip("-n", hub, "link", "set", "here", "master", BRIDGE, "up")
            for machine in made:
                _ip("netns", "add", machine.name)
                _ip("-n", hub, "link", "add", machine.wire, "type", "veth",
                    "peer", "name", "eth0", "netns", machine.name)
                _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
                for link in ("eth0", "lo"):
                    _ip("-n", machine.name, "link", "set", link, "up")
                _ip("-n", hub, "link", "set", machine.wire, "up")
                machine.mend()
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            pytest.skip(f"this user may not have networks: {getattr(error, 'stderr', error)}")
        yield made
    finally:
        spaces = [hub, *(machine.name for machine in made)]
        for command in (["link", "del", here], *(["netns", "del", space] for space in spaces)):
            subprocess.run(["ip", *command], capture_output=True, check=False)


def _hub() -> str:
    """Returns the name of the bridge's namespace."""
    return f"penstock-{os.getpid()}-hub"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
