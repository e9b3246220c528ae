"""What befalls a server and when, drawn from a seed: the same seed gives the same faults in the same order."""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

RANKS = ((0,), (1,), (0, 1))
"""The shards that a fault may befall, of a group of two."""
OVERLAP_SHARE = 0.25
"""How often a fault comes amid the one before, where both allow that."""


class Loses(Enum):
    """What a fault takes from clients by design; everything else has to be answered as ever."""

    NOTHING = "nothing"
    ACCEPTED = "requests that the router had accepted: their connections are cut"
    NEW = "new requests, until a server is started again: they are refused"


class Needs(Enum):
    """What a machine must allow for a fault to be possible."""

    NOTHING = "nothing"
    MOUNT = "a file system mounted by the test"
    CGROUP = "a cgroup with a limit of memory made by the test"
    SOCKETS = "sockets of other processes opened by the test (pidfd_getfd)"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault. One that lasts has a shortest and a longest duration in seconds."""

    name: str
    lasts: tuple[float, float] = (0.0, 0.0)
    has_ranks: bool = False
    may_overlap: bool = False
    loses: Loses = Loses.NOTHING
    needs: Needs = Needs.NOTHING


KINDS = (
    Kind("shards killed", has_ranks=True, may_overlap=True),
    Kind("shards killed, and again as they start", (0.0, 2.0), has_ranks=True),
    Kind("shards crash", has_ranks=True, may_overlap=True),
    Kind("shards asked to end", has_ranks=True, may_overlap=True),
    Kind("shards stopped", has_ranks=True),
    Kind("shards stopped for a while", (0.2, 1.5), has_ranks=True),
    Kind("router killed", may_overlap=True, loses=Loses.ACCEPTED),
    Kind("router asked to end"),
    Kind("router stopped", loses=Loses.ACCEPTED),
    Kind("router stopped for a while", (0.2, 1.5)),
    Kind("router out of file descriptors", (0.5, 1.5)),
    Kind("template processes killed", may_overlap=True),
    Kind("template processes stopped"),
    Kind("launcher killed", loses=Loses.NEW),
    Kind("launcher asked to end", loses=Loses.NEW),
    Kind("launcher stopped for a while", (0.5, 3.0)),
    Kind("router cut off from shards", has_ranks=True, may_overlap=True, needs=Needs.SOCKETS),
    Kind("shards cut off from one another", may_overlap=True, needs=Needs.SOCKETS),
    Kind("socket folder removed, shards killed", has_ranks=True),
    Kind("socket folder removed, router killed", loses=Loses.ACCEPTED),
    Kind("disk full, shards killed", (0.5, 2.0), has_ranks=True, needs=Needs.MOUNT),
    Kind("checkpoint away, shards killed", (0.5, 2.0), has_ranks=True),
    Kind("tokenizer away, router killed", (0.5, 2.0), loses=Loses.ACCEPTED),
    Kind("out of memory", needs=Needs.CGROUP),
    Kind("clients leave", may_overlap=True),
    Kind("clients read slowly", may_overlap=True),
    Kind("clients half-close", may_overlap=True),
    Kind("clients send half a request", (0.5, 1.5), may_overlap=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Event:
    """One fault. It comes `pause` seconds after the one before is over, or has begun if it `overlaps` that."""

    number: int
    kind: Kind
    pause: float
    overlaps: bool
    ranks: tuple[int, ...]
    seconds: float
    seed: int

    def __str__(self) -> str:
        ranks = f" (rank {' and '.join(map(str, self.ranks))})" if self.ranks else ""
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        when = "amid the one before" if self.overlaps else "after the one before"
        return f"fault {self.number}: {self.kind.name}{ranks}{lasting}, {self.pause:.1f} s {when}"


def schedule(seed: int, kinds: Sequence[Kind]) -> Iterator[Event]:
    """Yields faults without end: every kind once, in a random order, then every kind again in another.

    At most two of them overlap, for more deaths in a row than that may end a server by design.
    """
    rng = random.Random(seed)
    last: Event | None = None
    number = 0
    while kinds:
        for kind in rng.sample(kinds, len(kinds)):
            number += 1
            last = _event(rng, number, kind, last)
            yield last


def _event(rng: random.Random, number: int, kind: Kind, last: Event | None) -> Event:
    overlaps = rng.random() < OVERLAP_SHARE
    pause = rng.uniform(0.0, 1.5)
    ranks, seconds, seed = rng.choice(RANKS), rng.uniform(*kind.lasts), rng.getrandbits(32)
    can_overlap = kind.may_overlap and last is not None and last.kind.may_overlap and not last.overlaps
    return Event(number, kind, pause, overlaps and can_overlap, ranks if kind.has_ranks else (), seconds, seed)


def choose(names: Collection[str]) -> list[Kind]:
    """Returns the kinds whose names contain one of these; all of them if there is none. Raises ValueError for a name
    that no kind has."""
    for name in names:
        if not any(name in kind.name for kind in KINDS):
            raise ValueError(f"no kind of fault is called {name!r}; there are: {', '.join(BY_NAME)}")
    return [kind for kind in KINDS if not names or any(name in kind.name for name in names)]
