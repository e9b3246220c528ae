"""The cost of a request: tokens by their kind, time of the groups and of their memory, and waiting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from penstock.router.generation.request_record import AnyStream, RequestRecord


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of all answers of a request together, and of those in whose place others were made."""

    input_tokens: int = 0
    """Of all prompts, each once, whatever number of answers it has."""
    computed_tokens: int = 0
    """Those of the prompts that were computed, for each of its answers."""
    cached_tokens: int = 0
    """Those of the prompts that the prefix cache had for the first answer to each."""
    replayed_tokens: int = 0
    """Those that were computed once more, after a preemption, the loss of a group, or a move to another one."""
    drafted_tokens: int = 0
    """Those that were guessed and verified."""
    accepted_tokens: int = 0
    """Those of them that were right."""
    output_tokens: int = 0
    step_seconds: float = 0.0
    """The share of the time of the groups' steps."""
    energy_uj: float | None = 0.0
    """The share of the energy of those steps, in microjoules; None where the machine does not tell it."""
    kv_token_seconds: float = 0.0
    """The time for which keys and values were held, times the number of their tokens."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """The seconds that were waited, by what for; of several answers the sum."""

    @property
    def step_us(self) -> int:
        """The share of the time of steps in whole microseconds."""
        return int(self.step_seconds * 1e6)

    @property
    def kv_token_ms(self) -> int:
        """The time for which keys and values were held, times their tokens, in whole milliseconds."""
        return int(self.kv_token_seconds * 1000)

    @classmethod
    def of(cls, record: RequestRecord) -> Self:
        """Adds up the cost of a request up to now."""
        return cls.of_streams(record.tries, record.first_streams, record.waits)

    @classmethod
    def of_streams(
        cls, streams: Sequence[AnyStream], firsts: Sequence[AnyStream], waited: Mapping[str, float]
    ) -> Self:
        """Adds up the cost of answers, of which `firsts` are the first to each prompt, and of what was `waited` for
        before the engine had them."""
        waits = {**waited}
        for stream in streams:
            for cause, seconds in stream.usage.waits.items():
                waits[str(cause)] = waits.get(cause, 0.0) + seconds  # JSON takes no words of an enum as names
        energies = [stream.usage.energy_uj for stream in streams if stream.usage.energy_uj is not None]
        guesses = [stream.guesses for stream in streams if stream.guesses is not None]
        return cls(
            input_tokens=sum([len(stream.request.input_ids) for stream in firsts]),
            computed_tokens=sum([stream.usage.prompt_tokens for stream in streams]),
            cached_tokens=sum([stream.hit_tokens for stream in firsts]),
            replayed_tokens=sum([stream.usage.replayed_tokens for stream in streams]),
            drafted_tokens=sum([each.drafted for each in guesses]),
            accepted_tokens=sum([each.accepted for each in guesses]),
            output_tokens=sum([stream.num_tokens for stream in streams]),
            step_seconds=sum([stream.usage.step_seconds for stream in streams]),
            energy_uj=sum(energies) if len(energies) == len(streams) else None,
            kv_token_seconds=sum([stream.usage.kv_token_seconds for stream in streams]),
            waits=waits)
