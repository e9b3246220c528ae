"""The engine as the rest of the router sees it, wherever it is."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from penstock.contract.facts import Facts
from penstock.router.engine.receiver import Receiver
from penstock.router.limits import Limits


class AnyEngine(Protocol):
    """The engine as handlers and the router's process need it: the groups of this process, or those of another one."""

    facts: Facts
    """Those of the group with the most memory."""
    limits: Limits
    """The limits of requests now."""
    changed: asyncio.Event
    """Set when any of these may have changed; the one who follows them clears it."""

    @property
    def kinds(self) -> Sequence[Facts]:
        """The facts of a group of each kind, of which no two compute the same bits; the kind for the next request
        first."""
        ...

    @property
    def num_slots(self) -> int:
        """How many sequences run at once, in all groups together."""
        ...

    @property
    def is_healthy(self) -> bool:
        """Whether requests are taken: also while the groups are away, as long as requests wait for one."""
        ...

    @property
    def has_group(self) -> bool:
        """Whether a group is open and runs steps."""
        ...

    def permit(self, number: int = 1) -> AbstractAsyncContextManager[None]:
        """Holds `number` of the permits for requests in the router. Raises Overloaded when fewer are left."""
        ...

    def submit(self, receiver: Receiver, output_so_far: Sequence[int] = ()) -> None:
        """Starts to generate after the prompt and `output_so_far` of the receiver's request.

        Raises Unhealthy while no requests are taken, and GenerationError if the request fits no group any more, or the
        shards fail whenever they load its adapter.
        """

    async def stalled_seconds(self) -> float:
        """Returns for how long no step has come back, though requests run."""
        ...

    async def run(self) -> None:
        """Drives the groups until cancelled."""

    def keep_waiting(self, seconds: float | None = None) -> None:
        """Lets requests wait for their group for the whole of the time for that again, since it makes progress in
        loading. From now on that time is `seconds`, if they are given: 0 for a group that will not come back."""

    def give_up(self) -> None:
        """Fails all requests with Unhealthy, and refuses new ones until a group is opened anew."""
