"""What hosts tell the keeper, and the keeper the user."""

from dataclasses import dataclass, field
from enum import StrEnum

from penstock.cluster.scaling import Load


class State(StrEnum):
    """What a host's child does."""

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
    """What a host says of itself."""

    state: State
    machine: str
    """The IP address of its machine."""
    address: str = ""
    """HOST:PORT at which its first shard listens, or the router's URL."""
    master: tuple[str, int] | None = None
    """Where the parts of a group may meet, for those that have this part as their first."""
    load: Load | None = None
    """What a router has to do."""
    trouble: str = ""
    """Why its child did not start, or ended by itself."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the keeper knows of a deployment."""

    num_groups: int | None
    """How many groups there should be, if that is known yet."""
    groups: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """For each part of each group, what it does and where."""
    router: tuple[str, str] | None = None
    """What the router does and where, if there is one."""
    load: Load | None = None
    trouble: str = ""
    """The last reason why something did not start or was lost."""
    is_over: bool = False
    """Whether all has ended that was told to end."""
