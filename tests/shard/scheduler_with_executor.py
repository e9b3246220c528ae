"""The real scheduler over a real executor, joined by the real wire, in one process and without a clock."""

import itertools
import random
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.contract import wire
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.row_result import TopLogprobs
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels.kv_cache import KvCache
from penstock.router.scheduling.confirmed import PromptLogprobsPart, Verified
from penstock.router.scheduling.guesser import PROPOSED, Alternative, Guesser
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence as Scheduled
from penstock.router.scheduling.speculation.speculation import Speculation
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.masks import Masks
from penstock.shard.serving.checks import check_row
from tests.adapter_inputs import adapter_value
from tests.shard.ranks import Outputs, Sampled, execute
from tests.shard.step_programs import Request, make_mask, mask_seed_at


@dataclass(frozen=True)
class Traffic:
    """How requests meet the scheduler. `arrivals[i]`: the step before which request i comes; all at once by default."""

    depth: int = 1
    num_blocks: int = 256
    max_step_tokens: int = 64
    arrivals: Sequence[int] = ()
    losses: Collection[int] = ()         # after which steps the group is lost, with steps in flight
    keeps_memory: bool = False           # whether what it had computed outlives it
    guesses: int = 0                     # how many tokens of a sequence a step guesses: of three most are right
    adapter: int = 0                     # of all requests
    proposals: int = 0                   # how many tokens of a sequence the draft model proposes in a step, at most
    guesses_too: bool = True             # whether others than the draft model guess beside it


@dataclass
class Counted:
    """What the traffic led to."""

    hit_tokens: int = 0
    preempted: int = 0
    replayed: int = 0
    drafted: int = 0
    accepted: int = 0
    forked: int = 0


class Prompter:
    """Guesses the tokens of an answer that is known, with a wrong one among them now and then."""

    def __init__(self, tokens: Sequence[int], answer: Sequence[int], seed: int) -> None:
        self._tokens = tokens
        self._random = random.Random(seed)
        self._whole = [*tokens, *(token_id if self._random.random() < 0.75 else 5 for token_id in answer)]
        self._right = [*tokens, *answer]

    def note(self, token_id: int) -> None:
        """Nothing is learnt from what comes."""

    def force(self, token_ids: Sequence[int]) -> None:
        """Nothing is forced."""

    def guess(self, number: int) -> tuple[list[int], float]:
        return self._whole[len(self._tokens):len(self._tokens) + number], self._random.random()

    def alternative(self, number: int) -> Alternative | None:
        """What is right, in every other step."""
        told = len(self._tokens)
        return Alternative(self._right[told:told + number], 0, 0.95) if self._random.random() < 0.5 else None

    def judge(self, number: int, num_right: int) -> None:
        """Nothing is proposed."""


class Asker:
    """Has the draft model propose, now and then, and guesses with luck at other times."""

    def __init__(self, tokens: Sequence[int], context_length: int, others: Prompter | None, seed: int) -> None:
        self._tokens = tokens
        self._context_length = context_length
        self._others = others
        self._random = random.Random(seed)

    def note(self, token_id: int) -> None:
        """Nothing is learnt from what comes."""

    def force(self, token_ids: Sequence[int]) -> None:
        """Nothing is forced."""

    def guess(self, number: int) -> tuple[list[int], float]:
        luck, room = self._random.random(), min(number, self._context_length - len(self._tokens))
        if luck < 0.1 or room <= 0:
            return [], 0.0
        if self._others is not None and luck < 0.3:
            return self._others.guess(number)
        return [PROPOSED] * room, self._random.random()

    def alternative(self, number: int) -> Alternative | None:
        return None

    def judge(self, number: int, num_right: int) -> None:
        """Nothing is learnt from what was right."""


def run_traffic(
    executor: Executor, requests: Sequence[Request], traffic: Traffic, expected: Outputs = ()
) -> tuple[Outputs, Counted]:
    """The outputs of all requests, and what happened on the way. What is not written, or lost, is poison. Guesses are
    made of the `expected` outputs."""
    driver = _Driver(executor, requests, traffic, expected)
    for step in range(100_000):
        if not driver.advance(step):
            return driver.outputs, driver.counted
    raise AssertionError("the traffic does not end")


class _Driver:
    def __init__(
        self, executor: Executor, requests: Sequence[Request], traffic: Traffic, expected: Outputs
    ) -> None:
        self._expected = expected
        self._executor = executor
        self._requests = requests
        self._traffic = traffic
        self._max_slots = min(traffic.max_step_tokens - 1, executor.memory.bounds.num_states or traffic.max_step_tokens)
        self._arrivals = deque(sorted(zip(traffic.arrivals or [0] * len(requests), range(len(requests)), strict=True)))
        self._scheduler = Scheduler(
            block_size=executor.memory.bounds.block_size, num_blocks=traffic.num_blocks, max_slots=self._max_slots,
            max_step_tokens=traffic.max_step_tokens, shares_prefixes=executor.memory.bounds.num_states is None,
            speculation=Speculation(most, 64) if (most := traffic.guesses or traffic.proposals) else None)
        if self._scheduler.speculation:
            for num_tokens in (1, 64):   # as if more of them cost nothing
                self._scheduler.speculation.cost.observe(num_tokens, 1.0)
        self._in_flight: deque[tuple[StepResult, list[bytes]]] = deque()
        self.outputs: Outputs = [[] for _ in requests]
        self._collected: list[dict[int, tuple[float, TopLogprobs]]] = [{} for _ in requests]
        self.counted = Counted()
        self._open()

    def advance(self, step: int) -> bool:
        """Let requests arrive, fill the pipeline, commit one step or lose all. False: nothing is left to do."""
        while self._arrivals and self._arrivals[0][0] <= step:
            self._add(self._arrivals.popleft()[1])
        while len(self._in_flight) < self._traffic.depth and (plan := self._scheduler.plan()):
            self.counted.hit_tokens += sum(admission.hit_tokens for admission in plan.admitted)
            self.counted.preempted += len(plan.preempted)
            firsts = sum(row.initial_state is not None for row in plan.rows)
            self.counted.forked += firsts - len(plan.admitted)
            self._in_flight.append(self._execute(plan))
        if step in self._traffic.losses:
            self.counted.replayed += self._scheduler.forget_all().num_replayed
            self._in_flight.clear()
            if not self._traffic.keeps_memory:
                assert not self._scheduler.resize(self._traffic.num_blocks)
            self._open()
        elif self._in_flight:
            self._commit()
        return bool(self._arrivals or self._in_flight or self._scheduler.num_waiting or self._scheduler.num_running)

    def _open(self) -> None:
        unknown = [block for block in range(self._traffic.num_blocks) if block not in self._scheduler.memory.cache]
        for memory in [*self._executor.memory.caches, *self._executor.drafter.caches]:
            memory.data[unknown if isinstance(memory, KvCache) else slice(None)] = 0xFF
        bounds, most = self._executor.memory.bounds, self._traffic.max_step_tokens
        width = -(-bounds.context_length // bounds.block_size)
        self._executor.open(StreamLimits(self._max_slots, most, width, epoch=1))

    def _add(self, index: int) -> None:
        request = self._requests[index]
        tokens = list(request.prompt)
        guesser: Guesser | None = None
        if self._traffic.guesses or self._traffic.proposals:
            guesser = Prompter(tokens, [sampled.token_id for sampled in self._expected[index]], seed=index)
            if self._traffic.proposals and request.mask_seed is None:
                others = guesser if self._traffic.guesses_too else None
                guesser = Asker(tokens, self._executor.memory.bounds.draft_context, others, seed=index)
        self._scheduler.add(Scheduled(
            id=index, tokens=tokens, guesser=guesser, prompt_length=len(request.prompt),
            max_length=len(request.prompt) + request.num_tokens, sampling=request.sampling,
            has_grammar=request.mask_seed is not None, wants_prompt_logprobs=request.wants_prompt_logprobs))

    def _execute(self, plan: Plan) -> tuple[StepResult, list[bytes]]:
        step = wire.decode_plan(wire.encode_plan(plan).plan, plan.step_id, check_row)
        step = replace(step, rows=tuple(self._with_adapter(row) for row in step.rows))
        rows, logits = execute(self._executor, step, self._masks(plan))
        assert logits is not None
        result = wire.decode_result(wire.encode_result(StepResult(step.step_id, rows, 0, 0)))
        kept = {row.slot: len(row.token_ids) for row in rows}
        scores = iter(scores.tobytes() for scores in logits)
        each = {row.slot: list(itertools.islice(scores, row.num_samples))[:kept[row.slot]] for row in step.rows
                if row.is_sampled}
        by_slot = result.by_slot()
        in_order = [row.slot for row in plan.rows if row.slot in by_slot]
        return replace(result, rows=tuple(by_slot[slot] for slot in in_order)), [
            *itertools.chain(*(each.get(slot, ()) for slot in in_order))]

    def _with_adapter(self, row: Row) -> Row:
        state = row.initial_state
        return row if state is None else row._replace(initial_state=replace(
            state, side_inputs=adapter_value(self._traffic.adapter)))

    def _masks(self, plan: Plan) -> Masks:
        first_of = {row.slot: row.start + row.num_inputs - row.num_guesses for row in plan.rows}
        return {
            slot: np.concatenate([
                make_mask(mask_seed_at(self._requests[index], position), self._executor.memory.bounds.vocab_size)
                for position in range(first_of[slot], first_of[slot] + len(drafts) + 1)])
            for slot, index, drafts in plan.masked}

    def _commit(self) -> None:
        result, logits = self._in_flight.popleft()
        tokens = [token for row in result.rows for token in zip(row.token_ids, row.logprobs, strict=True)]
        # Rows with equal tokens and logprobs keep their order.
        of_token = defaultdict[tuple[int, float], deque[bytes]](deque)
        for token, scores in zip(tokens, logits, strict=True):
            of_token[token].append(scores)
        for news in self._scheduler.commit(result):
            if isinstance(news, Verified):
                self.counted.drafted += news.num_drafts
                self.counted.accepted += news.num_accepted
                continue
            collected = self._collected[news.sequence_id]
            if isinstance(news, PromptLogprobsPart):
                tops = news.top_logprobs or [()] * len(news.logprobs)
                collected.update(zip(itertools.count(news.start), zip(news.logprobs, tops, strict=True)))
                continue
            prompt_logprobs = tuple(logprob for _, (logprob, _) in sorted(collected.items()))
            tops = tuple(top for _, (_, top) in sorted(collected.items()) if top)
            collected.clear()
            top = (news.top_logprobs,) if self._requests[news.sequence_id].sampling.top_n else ()
            scores = of_token[news.token_id, news.logprob].popleft()
            self.outputs[news.sequence_id].append(
                Sampled(scores, news.token_id, news.logprob, top, prompt_logprobs, tops))
