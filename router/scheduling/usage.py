"""The use that a request has made of the groups which ran it: the time of their steps, their memory, and waiting."""

from dataclasses import dataclass, field

from penstock.router.scheduling.arrival import Arrival


@dataclass(slots=True, eq=False)
class Usage:
    """Counts the work and the waiting of one request, in all of its sequences and in every group that ran it. Only
    schedulers write to it."""

    prompt_tokens: int = 0
    """The tokens of the prompt that were computed."""
    replayed_tokens: int = 0
    """The tokens that were computed once more, since a preemption, a loss or a move had cost their keys and values."""
    step_seconds: float = 0.0
    """Its share of the time of the steps that computed it."""
    energy_uj: float | None = 0.0
    """Its share of the energy of those steps, in microjoules; None if that of one of them was not measured."""
    kv_token_seconds: float = 0.0
    """For how long it held keys and values, times the number of their tokens."""
    waits: dict[str, float] = field(default_factory=dict)
    """For how many seconds it waited, by what for: the values of `WaitReason` and of `Return`."""
    arrival: Arrival | None = None
    """The crowd that it found when it came to the first of the groups."""
    prompt_seconds: float = 0.0
    """From each time that it began to run, until its prompt was computed."""
    replay_seconds: float = 0.0
    """The same of the tokens that were computed once more."""
    vain_seconds: float = 0.0
    """From the last result of a group that was lost, until it was known to be lost."""
    num_steps: int = 0
    """How many steps the group made since its prompt was computed."""
    num_beside: int = 0
    """How many rows of others those steps had together."""
    prompts_beside: float = 0.0
    """The seconds of those steps that went to prompts of others."""
    reached: int = 0
    """How many of its tokens were computed before it last lost their keys and values."""

    def waited(self, cause: str, seconds: float) -> None:
        """Adds to the time for which it waited for something."""
        if seconds > 0.0:
            self.waits[cause] = self.waits.get(cause, 0.0) + seconds

    def lost(self, num_computed: int) -> None:
        """Notes that keys and values of so many of its tokens are there no more."""
        self.reached = max(self.reached, num_computed)
