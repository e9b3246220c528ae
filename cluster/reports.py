"""The reports of hosts to the keeper, and of the keeper to the user."""

from dataclasses import dataclass, field
from enum import StrEnum

from penstock.cluster.scaling import Load


class State(StrEnum):
    """The state of a host's child."""

    PLACED = "placed"
    """There is none yet."""
    STARTING = "starting"
    READY = "ready"
    """It takes requests."""
    STOPPING = "stopping"
    """It was told to end, and lets go of what runs."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a host about itself."""

    state: State
    machine: str
    """The IP address of its machine."""
    address: str = ""
    """HOST:PORT at which its first shard listens, or the router's URL."""
    master: tuple[str, int] | None = None
    """Where the parts of a group may meet, for those that have this part as their first."""
    load: Load | None = None
    """The load of a router."""
    trouble: str = ""
    """Why its child did not start, or ended by itself."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a deployment, as the keeper knows it."""

    num_groups: int | None
    """How many groups there should be, if that is known yet."""
    groups: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """For each part of each group, what it does and where."""
    router: tuple[str, str] | None = None
    """The state of the router and its place, if there is one."""
    load: Load | None = None
    trouble: str = ""
    """The last reason why something did not start or was lost."""
    is_over: bool = False
    """Whether all has ended that was told to end."""
