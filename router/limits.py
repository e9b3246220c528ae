"""The limits of what a request may ask for: those of the flags, completed by what the model and its memory allow."""

from dataclasses import dataclass, replace
from typing import Self

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router.config import HIDDEN, RouterConfig
from penstock.router.scheduling import step_budget
from penstock.system.setting import Who
from penstock.system.settings import ServerSettings, told_to

DEFAULT_SHARE = 7 / 8
"""The share of the KV memory that one request may have, unless a flag says otherwise. It is not all of it, because a
group that has to begin with new memory may find a little less of it, and what its requests were promised should still
fit."""


MAX_STEP_TOKENS = 4096
"""TGI's default of `max_batch_prefill_tokens`. The shards keep memory for a step of so many tokens."""


MAX_PROMPTS, MAX_TEXTS = 4, 2048
"""How many prompts a request may have by default, as in TGI, and how many texts, as at OpenAI's."""


class LimitError(ValueError):
    """Raised when the flags ask for more than the group has; the message names both values."""


def room(facts: Facts) -> int:
    """Returns how many tokens there must be room for behind a prompt: one of an answer, of a model that generates."""
    return int(Task.GENERATE in facts.tasks)


@dataclass(frozen=True, kw_only=True)
class Limits(ServerSettings):
    """The settings of what requests may ask for and how they are answered, completed at start. Counts are of tokens
    unless the name says otherwise."""

    max_input_tokens: int
    max_total_tokens: int
    max_batch_prefill_tokens: int
    """The most tokens of one step, prompt chunks and decode rows together."""
    max_slots: int
    """How many sequences run at once: fewer than a step's tokens, so that decode rows leave room for a prefill."""
    min_step_tokens: int = step_budget.FLOOR
    """How many tokens a step may have, however slow the machine is; the most, if a flag has set that."""
    memory_tokens: int = 0
    """How many tokens' keys and values the memory holds, of which a flag may let fewer be used; 0 if nobody knows."""
    max_client_batch_size: int = MAX_PROMPTS
    """How many prompts or texts a request may have."""
    body_timeout: float = 60.0
    """The most seconds from a request's headers to the end of its body."""

    @property
    def stall_limit(self) -> float:
        """The seconds for which no step may come back while requests run, before the router counts as hanging. A router
        in order never takes as long: a step that hangs is noticed after `step_timeout`, and a lost group is back within
        `max_shard_downtime`, or its requests have failed."""
        return 2.0 * self.step_timeout + self.max_shard_downtime

    def within(self, facts: Facts) -> Self:
        """Returns the limits of a group whose KV memory may hold less than at the start."""
        if facts.is_whole:
            return self
        total = min(self.max_total_tokens, facts.capacity)
        return replace(self, max_total_tokens=total, max_input_tokens=min(self.max_input_tokens, total - room(facts)))

    @property
    def max_step_samples(self) -> int:
        """How many tokens a step samples at most, which the shards have memory for: one of each sequence that runs, or
        all guesses of a single one."""
        return max(self.max_slots, 1 + self.speculate)

    @staticmethod
    def _whole(config: RouterConfig, facts: Facts, max_input: int, most: int) -> tuple[int, int]:
        """Returns how many tokens a text and a step may have where each text is computed in one step, and may have more
        than a step. The shards keep memory of a GPU for the step. Raises LimitError."""
        if config.max_batch_prefill_tokens is None and not facts.has_gpus:
            return max_input, max_input
        if config.max_input_tokens:
            raise LimitError("`max_input_tokens` must be <= `max_batch_prefill_tokens`, for the model computes each "
                             f"text in one step. Given: {max_input} and {most}")
        return most, most

    @classmethod
    def resolve(cls, config: RouterConfig, facts: Facts) -> Self:
        """Completes the flags by what the group reports. Raises LimitError if they ask for more than it had at its
        first start: that it found less since is not for the flags to mend, but for `within`."""
        max_total = config.max_total_tokens or (facts.context_length if facts.is_whole else min(
            facts.context_length, int(facts.most_capacity * DEFAULT_SHARE)))
        if max_total > facts.context_length:
            raise LimitError(f"`max_total_tokens` must be <= the model's context of {facts.context_length} tokens. "
                             f"Given: {max_total}")
        if max_total > facts.most_capacity and not facts.is_whole:
            raise LimitError(f"Not enough memory to handle `max_total_tokens={max_total}`: the KV memory holds "
                             f"{facts.most_capacity} tokens. Raise --kv-memory or lower --max-total-tokens")
        if max_total < 2:
            raise LimitError(f"`max_total_tokens` must be >= 2, a prompt and an answer. Given: {max_total}; the KV "
                             f"memory and `max_batch_total_tokens` allow {facts.most_capacity}")
        max_input = config.max_input_tokens or max_total - room(facts)
        if max_input > max_total - room(facts):
            raise LimitError(f"`max_input_tokens` must be {'<' if room(facts) else '<='} `max_total_tokens`. "
                             f"Given: {max_input} and {max_total}")
        most = config.max_batch_prefill_tokens or MAX_STEP_TOKENS
        if facts.is_whole and max_input > most:
            max_input, most = cls._whole(config, facts, max_input, most)
        if not room(facts):
            max_total = max_input
        if config.speculate and Task.GENERATE not in facts.tasks:
            raise LimitError(f"`speculate` must be 0: the model generates no text. Given: {config.speculate}")
        if config.speculate and facts.num_states:
            raise LimitError("`speculate` must be 0: the model carries a state from token to token, from which a wrong "
                             f"guess can't be taken back. Given: {config.speculate}")
        settings = {name: value for name, value in told_to(Who.ROUTER, config).items() if name not in HIDDEN}
        return cls(**settings | {
            "max_input_tokens": max_input, "max_total_tokens": max_total, "max_batch_prefill_tokens": most,
            "max_client_batch_size": (MAX_PROMPTS if room(facts) else MAX_TEXTS)
            if config.max_client_batch_size is None else config.max_client_batch_size,
            "max_slots": min(config.max_batch_size or config.max_concurrent_requests, most - 1,
                             facts.num_states or most),
            "min_step_tokens": config.max_batch_prefill_tokens or step_budget.FLOOR})
