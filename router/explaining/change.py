"""Which settings would have admitted a request at once, and to which values."""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.contract.facts import Facts
from penstock.router.limits import Limits
from penstock.router.scheduling.arrival import Arrival
from penstock.router.scheduling.wait_reasons import WaitReason

_MIB = 1 << 20


class Change(NamedTuple):
    """A setting of this server with a value by which it would have been no obstacle."""

    option: str
    value: str
    of: str = ""
    """The unit, where it is not the option's own."""

    def __str__(self) -> str:
        return f"`{self.option}` for {self.value} {self.of}" if self.of else f"`{self.option} {self.value}`"


def changes_for(
    waits: Mapping[str, float], arrival: Arrival, limits: Limits, facts: Facts
) -> tuple[Change, ...]:
    """Returns the settings that together would have admitted a request with these waits: none if it waited for nothing
    that has a setting, or there is something that none would have given it. Those that held it up are looked at, and
    those that would have, if the others had not."""
    found: list[Change] = []
    if WaitReason.MEMORY in waits or WaitReason.SLOTS in waits:
        for some in (_slots(arrival, limits, facts), _memory(arrival, limits, facts)):
            if some is None:
                return ()
            found += some
        if not found:
            return ()
    if WaitReason.BUDGET in waits:
        step = _step(arrival, limits, facts)
        if not step:
            return ()
        found += step
    if WaitReason.ADAPTER in waits and arrival.adapters_needed > arrival.adapter_budget:
        found.append(Change("--max-adapter-memory", f"{-(-arrival.adapters_needed // _MIB)}MiB"))
    return tuple(found)


def _slots(arrival: Arrival, limits: Limits, facts: Facts) -> list[Change] | None:
    """Returns the settings that give a slot to all that were there; None if none do."""
    needed = arrival.slots_needed
    if needed <= arrival.num_slots:
        return []
    is_bound = bool(facts.num_states) and needed > facts.num_states
    return None if is_bound or needed >= limits.max_batch_prefill_tokens else [Change("--max-batch-size", str(needed))]


def _memory(arrival: Arrival, limits: Limits, facts: Facts) -> list[Change] | None:
    """Returns the settings that give memory to all that were there; None if none do, as on a GPU, whose memory is all
    taken unless a flag says otherwise."""
    if arrival.blocks_needed <= arrival.num_blocks:
        return []
    needed = _rounded(arrival.blocks_needed * facts.block_size)
    most = limits.max_batch_total_tokens
    is_bounded = most is not None and arrival.num_blocks >= most // facts.block_size
    bound = [Change("--max-batch-total-tokens", str(needed))] if is_bounded else []
    if is_bounded and needed <= limits.memory_tokens:
        return bound
    return None if facts.has_gpus else [*bound, Change("--kv-memory", str(needed), "tokens")]


def _step(arrival: Arrival, limits: Limits, facts: Facts) -> list[Change] | None:
    """Returns the setting that makes a step large enough for all that were there; None if none limits it, but the time
    that it takes."""
    most = limits.max_batch_prefill_tokens
    is_fixed = limits.min_step_tokens >= most or facts.step_tokens >= most
    if not is_fixed or arrival.step_tokens_needed <= most:
        return None
    return [Change("--max-batch-prefill-tokens", str(_rounded(arrival.step_tokens_needed)))]


def _rounded(number: int) -> int:
    """Returns the next larger number of two digits and zeros."""
    unit: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // unit) * unit
