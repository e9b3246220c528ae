"""Small schedulers and sequences, with tokens that say where they come from. Blocks hold 4 tokens throughout."""

from collections.abc import Sequence as Items

from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.side_inputs import SideInput
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.block_pool import BlockPool
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.prefix_cache import PrefixCache
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from tests.adapter_inputs import adapter_input

GREEDY = Sampling()


def make_scheduler(num_blocks: int = 100, max_slots: int = 4, max_step_tokens: int = 16, eos: int = 99) -> Scheduler:
    return Scheduler(block_size=4, num_blocks=num_blocks, max_slots=max_slots, max_step_tokens=max_step_tokens,
                     eos_token_ids={eos})


def make_sequence(
    id: int, length: int = 4, max_new: int = 8, sampling: Sampling = GREEDY, *, tokens: Items[int] | None = None,
    image: bytes = b"", ignore_eos: bool = False, confirmed_only: bool = False, priority: int = 0, age: int = -1,
    is_beam: bool = False, adapter: int = 0,
) -> Sequence:
    """Prompt of sequence 3, unless `tokens` are given: 300, 301, 302, …"""
    prompt = list(tokens) if tokens is not None else [100 * id + i for i in range(length)]
    return Sequence(id=id, tokens=prompt, prompt_length=len(prompt), max_length=len(prompt) + max_new,
                    sampling=sampling,
                    side_inputs=(SideInput("image", b"", image),) if image else adapter_input(adapter),
                    ignore_eos=ignore_eos, confirmed_only=confirmed_only, priority=priority, age=age, is_beam=is_beam)


def cached_blocks(pool: BlockPool, cache: PrefixCache) -> list[int]:
    """The blocks of the pool that are in the cache."""
    return [block for block in range(pool.num_blocks) if block in cache]


def num_cached(scheduler: Scheduler) -> int:
    return len(cached_blocks(scheduler.memory.pool, scheduler.memory.cache))


def answer(plan: Plan, *tokens: int) -> StepResult:
    """What the shards say to a plan: a token for each sampled row."""
    slots = [row.slot for row in plan.rows if row.output is Output.SAMPLE]
    return StepResult(plan.step_id, tuple(
        RowResult(slot, (token,), (-1.0,)) for slot, token in zip(slots, tokens, strict=True)))


def planned(scheduler: Scheduler) -> Plan:
    """The next plan, where there has to be one."""
    plan = scheduler.plan()
    assert plan is not None
    return plan


def step(scheduler: Scheduler, *tokens: int) -> tuple[Plan, list[Sampled]]:
    """Plan, and commit the given tokens at once."""
    plan = planned(scheduler)
    return plan, scheduler.commit(answer(plan, *tokens))


def spans(plan: Plan) -> list[tuple[int, int, int]]:
    """Slot, start and count of each row."""
    return [(row.slot, row.start, row.num_inputs) for row in plan.rows]
