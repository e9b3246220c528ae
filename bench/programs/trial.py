"""A trial of an engine, and its result."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """Random prompts, all given at once; the greedy or sampled answers do not end early."""

    name: str
    sequences: int
    prompt: int                          # tokens of each prompt
    new: int                             # tokens of each answer; with 1 the prompts are what is timed
    is_sampled: bool = False             # with temperature 0.8 and top-p 0.95


@dataclass(frozen=True)
class Split:
    """Where the time of a step went, in seconds, on average over the timed steps."""

    forward: float
    sample: float
    gap: float                           # neither: between two steps


@dataclass(frozen=True)
class Result:
    """The time of a trial. With new = 1, `tokens` are the prompts' and `seconds` pass until the last sequence has its
    first token. Otherwise `tokens` are those of the steps in which all sequences decode, and `seconds` the time of
    these steps."""

    tokens: int
    seconds: float
    split: Split | None = None

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds
