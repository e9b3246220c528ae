"""Stand-ins for what a router test must not wait for."""

import asyncio
from collections import deque
from collections.abc import Callable

from router.facts import Facts
from router.fleet.wire import Spaces
from router.limits import Limits
from router.scheduling.plan import Output, Plan, Row, RowResult, StepResult

FACTS = Facts(
    model_id="fake", dtype="float32", kv_dtype="float32", block_size=16, num_blocks=256, vocab_size=8192,
    eos_token_ids=frozenset({2}), context_length=2048, world_size=1, numerics="scripted", weights_digest="0",
    step_tokens=256)
LIMITS = Limits(max_input_tokens=1023, max_total_tokens=1024, max_batch_prefill_tokens=256, max_slots=128)


class ScriptedFleet:
    """A fleet whose shards are a function: `answer` gives the token of a sampled row.

    Set `failure` to make the next call raise it, once; clear `may_answer` to hold results back, `may_open` to be away.
    """

    def __init__(self, answer: Callable[[Row], int]) -> None:
        self.answer = answer
        self.plans: list[Plan] = []
        self.has_plan = asyncio.Event()
        self.failure: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.facts = FACTS
        self._pending: deque[Plan] = deque()

    async def open(self, spaces: Spaces) -> Facts:
        await self.may_open.wait()
        self._pending.clear()
        return self.facts

    async def submit(self, plan: Plan) -> None:
        self._fail()
        self.plans.append(plan)
        self.has_plan.set()
        self._pending.append(plan)

    async def next_result(self) -> StepResult:
        await asyncio.sleep(0)
        await self.may_answer.wait()
        plan = self._pending.popleft()
        rows = tuple(RowResult(row.slot, (self.answer(row),), (-0.5,))
                     for row in plan.rows if row.output is Output.SAMPLE)
        self._fail()
        return StepResult(plan.step_id, rows, forward_time=0.001, sample_time=0.0005)

    async def close(self) -> None:
        pass

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
