"""One of a router's groups, as the others see it."""

import asyncio
from collections.abc import Callable

from penstock.router.engine.engine import Engine


class Member:
    """Holds a group's engine, and what is known of the group beside it. One that is `lasting` is the launcher's own: it
    can't be exchanged for another while the router runs. `note` is to be called when what is known has changed."""

    def __init__(self, engine: Engine, is_lasting: bool, note: Callable[[], None]) -> None:
        self.engine = engine
        self.note = note
        self.is_lasting = is_lasting
        self.is_draining = False
        """Whether the group has asked that its requests leave."""
        self.is_gone = False
        """Whether the group is listed no more."""
        self.left = asyncio.Event()
        """Set once it is none of the router's groups any more."""
        self.task: asyncio.Task[None] | None = None
        """The task that drives the engine."""

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def is_leaving(self) -> bool:
        """Whether requests should go on elsewhere, and new ones come here only where there is no other group."""
        return self.is_draining or self.is_gone

    @property
    def is_open(self) -> bool:
        """Whether requests are welcome: the group runs steps, and need not be left."""
        return self.engine.has_group and not self.is_leaving and not self.engine.is_stuck

    @property
    def should_move(self) -> bool:
        """Whether requests should go on elsewhere at once, if they can."""
        return self.is_leaving or self.engine.is_stuck or not self.engine.has_group

    @property
    def state(self) -> str:
        """Says what the group does, in the metrics' words."""
        if not self.engine.has_group:
            return "away"
        if self.engine.is_stuck:
            return "stuck"
        return "draining" if self.is_leaving else "serving"

    @property
    def cause(self) -> str:
        """Says why requests move, in the metrics' words."""
        return "lost" if not self.engine.has_group else "stuck" if self.engine.is_stuck else "drained"

    def fits(self, num_tokens: int) -> bool:
        """Tells whether the group takes a request of so many tokens: its memory may hold more of them, but its shards
        have tables of blocks for no more."""
        return num_tokens <= self.engine.limits.max_total_tokens

    def has_weights(self, bits: tuple[str, ...]) -> bool:
        """Tells whether the group computes the model of `bits`, as `Facts.bits` names it."""
        return not bits or self.engine.facts.bits[0] == bits[0]

    def has_bits(self, bits: tuple[str, ...]) -> bool:
        """Tells whether the group computes the same bits."""
        return not bits or self.engine.facts.bits == bits
