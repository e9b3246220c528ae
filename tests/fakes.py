"""Stand-ins for what a router test must not wait for."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping

from penstock.bench.programs.scripted_model import ScriptedModel
from penstock.contract.facts import Facts
from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult, TopLogprobs
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.router.fleet.errors import AdapterRefusedError, FleetError
from penstock.router.limits import Limits
from tests.adapter_inputs import number_in

FACTS = Facts(
    memory_id="one",
    model_id="fake", dtype="float32", kv_dtype="float32", block_size=16, num_blocks=256, vocab_size=8192,
    eos_token_ids=frozenset({2}), context_length=2048, world_size=1, numerics="scripted", weights_digest="0",
    settings_digest="s0", step_tokens=256)
LIMITS = Limits(max_input_tokens=1023, max_total_tokens=1024, max_batch_prefill_tokens=256, max_slots=128)


class ScriptedFleet:
    """A fleet whose shards are a function: `answer` gives the token of a sampled row.

    `answer_masked` gives that of a row that has a mask, from its bits. Without masks such a step is never answered.
    A prompt token's logprob is the tenth part of its id, negated; the likeliest tokens are the token itself, and those
    whose ids follow. What is computed in the rows of `is_nan` is not a number.

    Adapters are loaded at once, unless `may_load` is cleared; those whose path is in `refused` never are. Every row's
    adapter has to be loaded. With `loses_adapters` the group dies of each load.

    Set `failure` to make the next call raise it, once, and `is_lost` to lose the group while it rests; clear
    `may_answer` to hold results back, `may_open` to be away.
    """

    def __init__(self, answer: Callable[[Row], int], answer_masked: Callable[[Row, bytes], int] | None = None) -> None:
        self.answer = answer
        self.answer_masked = answer_masked or (lambda row, mask: answer(row))
        self.plans: list[Plan] = []
        self.has_plan = asyncio.Event()
        self.failure: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.is_lost = asyncio.Event()
        self.facts = FACTS
        self.is_nan: Callable[[Row], bool] = lambda row: False
        self._failing: dict[str, int] = {}
        self.masks: list[tuple[int, Mapping[int, bytes]]] = []
        self.has_masks = asyncio.Event()
        self._pending: deque[Plan] = deque()
        self._unmasked: deque[Plan] = deque()
        self._top_n: dict[int, int] = {}
        self.adapters: dict[int, str] = {}
        """The paths of the loaded ones, by number."""
        self.loads: list[tuple[int, str, str]] = []
        self.unloads: list[int] = []
        self.refused: dict[str, str] = {}
        """The sentences with which adapters are refused, by path."""
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.loses_adapters = False
        self.slot_adapters: dict[int, int] = {}

    async def load_adapter(self, number: int, path: str, digest: str) -> int:
        self.loads.append((number, path, digest))
        assert number not in self.adapters, f"adapter {number} is loaded twice"
        await self.may_load.wait()
        if self.loses_adapters:
            raise FleetError("lost in load_adapter")
        if path in self.refused:
            raise AdapterRefusedError(self.refused[path])
        self.adapters[number] = path
        return 1000

    async def unload_adapter(self, number: int) -> None:
        await asyncio.sleep(0)
        self.unloads.append(number)
        self.adapters.pop(number, None)

    async def open(self, limits: StreamLimits) -> Facts:
        await self.may_open.wait()
        self.adapters.clear()
        self._pending.clear()
        self._unmasked.clear()
        return self.facts

    async def submit(self, plan: Plan) -> None:
        self._fail("submit")
        self.plans.append(plan)
        self.has_plan.set()
        self._pending.append(plan)
        if plan.masked:
            self._unmasked.append(plan)
        for row in plan.rows:
            assert row.late_mask == any(slot == row.slot for slot, _, _ in plan.masked)
            if row.initial_state is not None:
                self._top_n[row.slot] = row.initial_state.sampling.top_n
                self.slot_adapters[row.slot] = number_in(row.initial_state)
            assert not (number := self.slot_adapters[row.slot]) or number in self.adapters, "its adapter is not loaded"

    async def submit_masks(self, step_id: int, masks: Mapping[int, bytes]) -> None:
        self._fail("submit_masks")
        plan = self._unmasked.popleft()
        assert plan.step_id == step_id, f"masks for step {step_id}, those for {plan.step_id} come next"
        assert plan is self._pending[0], "a step before it is not back, so its masks can't be known"
        assert masks.keys() <= {slot for slot, _, _ in plan.masked}
        self.masks.append((step_id, masks))
        self.has_masks.set()

    async def next_result(self) -> StepResult:
        await asyncio.sleep(0)
        await self.may_answer.wait()
        plan = self._pending[0]
        while plan in self._unmasked:
            self.has_masks.clear()
            await self.has_masks.wait()
        self._pending.popleft()
        masks = self.masks[-1][1] if plan.masked else {}
        rows = tuple(self._run(row, masks.get(row.slot)) for row in plan.rows if row.is_answered)
        self._fail("next_result")
        return StepResult(plan.step_id, rows, forward_ns=1_000_000, sample_ns=500_000)

    async def end(self) -> None:
        await self.is_lost.wait()
        self.is_lost.clear()
        raise FleetError("lost at rest")

    async def close(self) -> None:
        pass

    @property
    def initial_states(self) -> list[InitialState]:
        """The initial states of all sequences that began to run, in their order."""
        return [row.initial_state for plan in self.plans for row in plan.rows if row.initial_state is not None]

    def _run(self, row: Row, mask: bytes | None) -> RowResult:
        scale = math.nan if self.is_nan(row) else 1.0
        prompt_logprobs = tuple(-token_id / 10 * scale for token_id in row.prompt_logprob_ids)
        has_top = bool(self._top_n.get(row.slot))
        prompt_ranks = tuple(token_id + 1 for token_id in row.prompt_logprob_ids)
        prompt_top_logprobs = tuple(self._top(row, token_id) for token_id in row.prompt_logprob_ids) if has_top else ()
        if row.output is Output.NONE:
            return RowResult(row.slot, (), (), prompt_logprobs=prompt_logprobs, prompt_top_logprobs=prompt_top_logprobs,
                             prompt_ranks=prompt_ranks)
        tokens = self._sample(row, mask)
        tops = tuple(self._top(row, token_id) for token_id in tokens) if has_top else ()
        return RowResult(row.slot, tuple(tokens), (-0.5 * scale,) * len(tokens), tops, prompt_logprobs,
                         prompt_top_logprobs, prompt_ranks=prompt_ranks)

    def _sample(self, row: Row, masks: bytes | None) -> list[int]:
        """The tokens of a row: as many as its drafts are right, and the one after."""
        row = self._with_proposals(row)
        tokens: list[int] = []
        size = len(masks) // (row.num_drafts + 1) if masks else 0
        for index in range(row.num_drafts + 1):
            known = row.token_ids[:len(row.token_ids) - row.num_drafts + index]
            so_far = row._replace(token_ids=known, num_drafts=0)
            mask = masks and masks[index * size:(index + 1) * size]
            tokens.append(self.answer_masked(so_far, mask) if mask else self.answer(so_far))
            if tokens[-1:] != list(row.drafts[index:index + 1]):
                break
        return tokens

    def _with_proposals(self, row: Row) -> Row:
        """The row with its proposals as drafts: of three one is wrong."""
        row, number = row._replace(num_proposals=0), row.num_proposals
        for _ in range(number):
            token_id = self.answer(row._replace(num_drafts=0))
            wrong = (row.start + row.num_inputs) % 3 == 0
            row = row._replace(token_ids=(*row.token_ids, token_id + wrong), num_drafts=row.num_drafts + 1)
        return row

    def _top(self, row: Row, token_id: int) -> TopLogprobs:
        return tuple((token_id + index, -0.5 - index) for index in range(self._top_n[row.slot]))

    def fail_at(self, method: str, number: int) -> None:
        """Lose the group in the call of this number to `method`, counted from now."""
        self._failing = {method: number}

    def _fail(self, method: str) -> None:
        if method in self._failing:
            self._failing[method] -= 1
            if not self._failing[method]:
                self._failing.clear()
                raise FleetError(f"lost in {method}")
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


class SpeakingFleet(ScriptedFleet):
    """A fleet whose answers are texts, which follow from the prompts."""

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__(model.token)
        self.model = model

    async def submit(self, plan: Plan) -> None:
        await super().submit(plan)
        for row in plan.rows:
            self.model.read(row)
