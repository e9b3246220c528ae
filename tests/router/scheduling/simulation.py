"""Seeded traffic through a scheduler and a mirror of its shard; every invariant is asserted after every verb."""

import random
from collections import Counter, deque
from collections.abc import Callable

from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.sampling import Sampling
from penstock.contract.side_inputs import TRACE, SideInput
from penstock.router.scheduling.cached_block import Node
from penstock.router.scheduling.confirmed import Candidates, PromptLogprobsPart, Sampled, Verified
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.speculation.speculation import Speculation
from penstock.router.scheduling.step_budget import GRAIN, StepBudget
from penstock.router.scheduling.suspects import MAX_SOLO_DEATHS
from tests.adapter_inputs import adapter_input
from tests.router.scheduling.invariants import advance_states, check_cached, check_row, check_scheduler
from tests.router.scheduling.shard_mirror import EOS, Mask, ShardMirror, chain_of, extend, made_logprob, sample
from tests.router.scheduling.simulated_adapters import ADAPTERS, SimulatedAdapters
from tests.router.scheduling.simulated_client import Client, Flight, Prophet
from tests.router.scheduling.simulated_time import SimulatedTime

CAPACITY, MAX_LENGTH = 96, 80
"""In tokens: of the KV memory, and of a sequence."""
MAX_CLIENTS = 16
MAX_PAUSE = 20
"""Steps without a row for a sequence that runs, while no suspect runs alone."""
MAX_WAIT = 1000
"""Steps without a row for the oldest sequence."""


class Simulation:
    """A scheduler, a shard, steps in flight, and clients that come, leave, come back and sometimes kill the group.

    `live` are the clients that wait for an answer, `present` those whose sequence has a slot, by id.
    """

    def __init__(self, seed: int, depth: int, scheduler_class: type[Scheduler] = Scheduler, *,
                 budget_varies: bool = False, carries_states: bool = False, guesses: int = 0,
                 has_proposals: bool = False, is_quiet: bool = False, num_microbatches: int = 1) -> None:
        self.random = random.Random(seed)
        self.speed = random.Random(seed) if budget_varies else None
        self.depth, self.num_microbatches = depth, num_microbatches
        self.guesses = guesses
        """How many tokens of a sequence a step guesses, at most."""
        self.has_proposals = has_proposals
        """Whether a draft model on the shards guesses, too."""
        self.block_size = self.random.choice([1, 2, 4, 4, 4, 8])
        self.num_slots = 12 if is_quiet else self.random.choice([2, 6, 6, 12])
        self.arrivals, self.token_time = (0.04, 0.001) if is_quiet else (0.12, 0.05)
        self.budget = self.num_slots + (60 if budget_varies or is_quiet else self.random.choice([1, 6, 12, 50]))
        num_blocks = CAPACITY // self.block_size
        self.counts: Counter[str] = Counter()
        self.clock = SimulatedTime(seed)
        self.adapters = SimulatedAdapters(seed, self.counts, self.fail_adapter)
        self.scheduler = scheduler_class(
            block_size=self.block_size, num_blocks=num_blocks, max_slots=self.num_slots, max_step_tokens=self.budget,
            budget=StepBudget(self.budget // 2, 1, self.budget) if budget_varies else None, eos_token_ids={EOS},
            shares_prefixes=not carries_states, adapters=self.adapters.residency, num_microbatches=num_microbatches,
            speculation=Speculation(guesses, 32) if guesses else None, clock=self.clock)
        self.reached: dict[int, int] | None = {} if carries_states else None
        """The position that each slot's state has come to, of a model that carries one."""
        self.shard = ShardMirror(self.block_size, num_blocks)
        self.in_flight: deque[Flight] = deque()
        self.live: dict[int, Client] = {}
        self.present: dict[int, Client] = {}
        self.ended: list[Client] = []
        self.cached: dict[int, Node] = {}
        self.plans: list[Plan] = []
        self.untold: set[int] = set()
        self.next_id, self.may_gather = 0, False  # whether clients may wait though nobody runs

    def run(self, num_steps: int) -> None:
        """So many rounds of traffic, then until all is answered."""
        for _ in range(num_steps):
            self.visit()
            self.advance(self.visit)
        num_left = MAX_WAIT * MAX_CLIENTS
        while self.live or self.in_flight:
            self.advance()
            num_left -= 1
            assert num_left, f"sequences {[*self.live]} never end"
        self.clock.check(self.scheduler.ledger)
        assert self.scheduler.plan() is None
        assert (self.scheduler.memory.num_held, self.scheduler.num_running, self.scheduler.num_waiting) == (0, 0, 0)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def visit(self) -> None:
        """Clients come and go; now and then the group dies."""
        if len(self.live) < MAX_CLIENTS and self.chance(self.arrivals):
            self.arrive()
        if self.live and self.chance(0.015):
            self.leave()
        if self.chance(0.002):
            self.lose()

    def advance(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Plan ahead, most of the time as far as the depth allows, then take one result."""
        while len(self.in_flight) < self.depth and (not self.in_flight or self.chance(0.9)) and self.plan():
            pass
        meanwhile()
        self.adapters.advance(self.shard)
        if self.in_flight:
            self.commit()

    def arrive(self) -> None:
        """A new prompt, the next turn of a conversation, or a prompt several times at once."""
        tokens, namespace = self.prompt()
        limit = MAX_LENGTH if self.chance(0.1) else min(len(tokens) + self.random.randint(1, 40), MAX_LENGTH)
        for _ in range(self.random.choice([1, 1, 1, 1, 2, 3])):
            trace = (SideInput(TRACE, b"trace"),) if self.next_id % 3 == 0 else ()
            side_inputs = adapter_input(ADAPTERS[namespace]) + trace
            sequence = Sequence(
                id=self.next_id, tokens=list(tokens), prompt_length=len(tokens), max_length=limit, sampling=Sampling(),
                side_inputs=side_inputs, ignore_eos=self.chance(0.2),
                stop_token_ids=frozenset({7} if self.chance(0.3) else ()),
                has_grammar=self.chance(0.3), wants_prompt_logprobs=self.chance(0.15), confirmed_only=self.chance(0.1),
                priority=self.priority())
            self.next_id += 1
            chain = chain_of(ADAPTERS[namespace], tokens)
            client = Client(sequence, list(tokens), chain, self.random.choice([0, 0, 1]), side_inputs)
            if self.chance(0.01):
                client.kills_at = self.random.randint(len(tokens), limit - 1)
            if self.guesses and sequence.id % 4:
                sequence.guesser = Prophet(client, seed=sequence.id, has_proposals=self.has_proposals)
            self.live[sequence.id] = client
            self.scheduler.add(sequence)
            self.added(sequence)
            self.check()

    def priority(self) -> int:
        return 0

    def added(self, sequence: Sequence) -> None:
        """A sequence has just been added."""

    def prompt(self) -> tuple[list[int], str]:
        if self.ended and self.chance(0.4):
            client = self.random.choice(self.ended[-8:])
            namespace = client.sequence.namespace if self.chance(0.9) else ""
            question = [self.random.randint(2, 9) for _ in range(self.random.randint(1, 6))]
            return client.tokens[:MAX_LENGTH - 8] + question, namespace
        head = [10 * self.random.randint(1, 3)] * self.random.choice([0, 6, 11, 17])
        tail = [self.random.randint(2, 9) for _ in range(self.random.randint(1, 24))]
        return head + tail, self.random.choice(["", "", "", *ADAPTERS])

    def leave(self) -> None:
        self.end(self.random.choice(list(self.live.values())), FinishReason.CANCELLED)
        self.check()

    def end(self, client: Client, reason: FinishReason | None) -> None:
        """No more tokens for this client; `reason` unless the scheduler has ended the sequence itself."""
        if reason is not None:
            self.scheduler.finish(client.sequence.id, reason)
        del self.live[client.sequence.id]
        self.ended.append(client)
        self.counts["ended"] += 1

    def fail_adapter(self, number: int) -> None:
        """The shards refuse an adapter: whoever waits for it is told."""
        for client in [client for client in self.live.values() if client.adapter == number]:
            assert client.sequence.status in (Status.WAITING, Status.FINISHED), "it runs without its adapter"
            if client.sequence.id in self.live:  # else it is a beam, which has ended with another
                self.end(client, FinishReason.ERROR)

    def plan(self) -> bool:
        """Plan a step; False when there is nothing to plan for now."""
        self.adapters.order(self.scheduler)
        running = [c for c in self.live.values() if c.sequence.status is Status.RUNNING]
        oldest = next(iter(self.scheduler._batch.running), None)
        alone = self.scheduler.suspects.alone
        most = min(max(self.scheduler.budget.tokens, len(running) + GRAIN), self.budget)
        is_due = oldest and alone is None and not oldest.is_background and self.is_due(oldest)
        due = {oldest.id} if oldest and is_due else set()
        self.clock.pass_by()
        plan = self.scheduler.plan()
        if plan is None:
            self.adapters.order(self.scheduler, is_idle=not self.in_flight)
        self.untold |= {c.sequence.id for c in running if c.sequence.status is not Status.RUNNING}
        flight = self.flight(plan) if plan is not None else None
        named = {client.sequence.id for client, _, _ in flight.rows} if flight is not None else set()
        assert due <= named or self.is_memory_coming(), "the oldest sequence gets no row"
        if flight is not None:
            self.check_plan(flight, named, most)
            self.note_pauses(named)
            self.in_flight.append(flight)
            self.plans.append(flight.plan)
        assert self.in_flight or self.adapters.pending or not self.live or self.may_gather, "sequences wait for ever"
        self.check()
        return plan is not None

    def check_plan(self, planned: Flight, named: set[int], most: int) -> None:
        """What holds for one step, beside those that are in flight already."""
        plan, num_rows = planned.plan, len(planned.rows)
        assert 0 < plan.num_tokens <= most, f"{plan.num_tokens} tokens in a step of {most}"
        assert len({row.slot for row in plan.rows}) == len(plan.rows), "two rows for one slot"
        assert num_rows == len(named) == len(plan.rows) - len(planned.forks), "two rows for one sequence"
        held_back = {c.sequence.id for flight in self.in_flight for c, row, _ in flight.rows
                     if c.sequence.confirmed_only or row.num_guesses}
        assert not named & held_back, f"{named & held_back} are planned before their tokens are back"
        if self.reached is not None:
            advance_states(self.reached, plan)
        if (suspect := self.scheduler.suspects.alone) is not None:
            assert not self.in_flight, "a suspect's step is not alone in flight"
            assert named == {suspect.id}, f"sequences {named} run, the suspect is {suspect.id}"
        readmitted = {admission.sequence_id for admission in plan.admitted}
        assert self.untold <= set(plan.preempted) <= self.untold | readmitted, (
            f"{self.untold} were preempted, the plan says {plan.preempted}")
        self.untold.clear()
        self.counts.update(preempted=len(plan.preempted), steps=1)

    def is_due(self, sequence: Sequence) -> bool:
        """Whether the sequence has something to compute that no step in flight does, or must not yet."""
        num_named = sum(row.slot == sequence.slot for flight in self.in_flight for row in flight.plan.rows)
        is_held_back = num_named > 0 and (sequence.confirmed_only or sequence.guesser is not None or (
            self.num_microbatches > 1 and not sequence.is_prefilling))
        return not (is_held_back or sequence.is_undecided) and (
            sequence.is_prefilling or sequence.planned_length < sequence.max_length)

    def is_memory_coming(self) -> bool:
        """Whether a sequence that gets no more rows still holds blocks, for a step in flight names it."""
        return any(c.sequence.status in (Status.DRAINING, Status.FINISHED) for c in self.present.values())

    def note_pauses(self, named: set[int]) -> None:
        suspects = self.scheduler.suspects
        for client in self.live.values():
            client.pause = 0 if client.sequence.id in named or self.may_pause(client) else client.pause + 1
            if suspects.alone is not None or suspects.holds(client.sequence) or client.sequence.is_undecided:
                client.pause = 0
            if client.sequence.status is Status.RUNNING:
                self.counts["longest pause"] = max(self.counts["longest pause"], client.pause)
                assert client.pause <= MAX_PAUSE, f"sequence {client.sequence.id} runs but makes no progress"
        if self.live:
            oldest = min(self.live.values(), key=lambda c: c.sequence.order)
            self.counts["longest wait"] = max(self.counts["longest wait"], oldest.pause)
            assert oldest.pause <= MAX_WAIT, f"sequence {oldest.sequence.id} makes no progress"

    def may_pause(self, client: Client) -> bool:
        """Whether a client may be without a row for as long as others have some."""
        return False

    def flight(self, plan: Plan) -> Flight:
        """Find the clients behind a plan's rows: a first row belongs to an admitted sequence, in this order."""
        flight = Flight(plan, [], {})
        rows = flight.find_forks(self.present.values())
        admitted = {admission.sequence_id for admission in plan.admitted}
        for client, row in flight.find_firsts(rows, self.live.values()):
            assert not (row.start and client.needs_prompt_logprobs), "a hit, though prompt logprobs are missing"
            self.present[client.sequence.id] = client
            self.counts["hits" if client.sequence.id in admitted else "beams forked"] += row.start > 0
        by_slot = {client.sequence.slot: client for client in self.present.values()}
        for row in rows:
            client = by_slot[row.slot]
            known = row.token_ids[:len(row.token_ids) - row.num_drafts]
            assert list(known) == client.tokens[row.start:row.start + len(known)], "a row brings other tokens"
            assert row.is_decode == (row.start >= client.sequence.prefill_end)
            if row.num_drafts:
                assert row.start == len(client.tokens) - 1, "guesses follow a token that nobody knows"
            if row.num_guesses:
                assert row.start + row.num_inputs < client.sequence.max_length, "guesses go beyond the sequence's end"
            assert not row.num_proposals or not (row.late_mask or row.num_drafts), "proposals that nobody can mask"
            self.counts.update(drafts=row.num_drafts, proposals=row.num_proposals,
                               proposals_ahead=bool(row.num_proposals) and row.start >= len(client.tokens))
            check_row(client, row)
            flight.rows.append((client, row, tuple(client.sequence.blocks)))
        late = [(client, row) for client, row, _ in flight.rows
                if client.sequence.has_grammar and row.output is Output.SAMPLE]
        assert plan.masked == tuple(
            (row.slot, client.sequence.id, row.drafts) for client, row in late), "who waits for a mask?"
        self.counts.update(forks=len(flight.forks), masked=len(late),
                           prompt_logprobs=sum(len(row.prompt_logprob_ids) for row in plan.rows))
        return flight

    def commit(self) -> None:
        """The oldest step in flight runs: the group dies in it, or its result comes back."""
        flight = self.in_flight[0]
        if any(c.kills_at is not None and 0 <= row.start + row.num_inputs - c.kills_at <= row.num_guesses
               for c, row, _ in flight.rows):
            self.lose()
            return
        masks = {slot: [self.live[id].mask_after(index) or Mask() for index in range(len(drafts) + 1)]
                 for slot, id, drafts in flight.plan.masked if id in self.live}
        result = self.shard.run(flight.plan, flight.firsts, masks)
        for _, row, blocks in [*flight.rows, *((client, row, row.new_blocks) for client, row in flight.forks)]:
            assert self.shard.blocks(row.slot) == list(blocks), f"the shard's block table of slot {row.slot} is another"
        expected = [client.sequence.id for client, row, _ in flight.rows if client.sequence.id in self.live
                    and row.start + row.num_inputs - row.num_guesses == len(client.tokens)]
        for client, row, _ in flight.rows:
            if row.num_proposals and client.sequence.id in self.live and isinstance(client.sequence.guesser, Prophet):
                client.sequence.guesser.unjudged = row.num_proposals
        lengths = {client.sequence.id: len(client.tokens) for client, _, _ in flight.rows}
        self.clock.pass_by()
        confirmed = self.scheduler.commit(self.clock.timed(result, self.scheduler.ledger))
        self.counts["forks taken"] += sum(client.sequence.slot == row.slot for client, row in flight.forks)
        self.time(flight.plan)
        self.in_flight.popleft()
        tokens = [each.sequence_id for each in confirmed if isinstance(each, Sampled | Candidates)]
        assert list(dict.fromkeys(tokens)) == expected, "tokens are lost, or come for nobody"
        for item in confirmed:
            if isinstance(item, PromptLogprobsPart):
                self.take_prompt_logprobs(item)
            elif isinstance(item, Verified):
                self.counts["accepted"] += item.num_accepted
                assert tokens.count(item.sequence_id) <= item.num_accepted + 1
            elif item.sequence_id in self.live:
                self.consider(item) if isinstance(item, Candidates) else self.deliver(item)
        assert all(len(self.live[id].tokens) == length + tokens.count(id) for id, length in lengths.items()
                   if id in self.live and not self.live[id].sequence.is_beam), "tokens are lost"
        self.check()

    def time(self, plan: Plan) -> None:
        """Tells the scheduler how long the step took, on a machine whose speed is another in each, if it varies."""
        if self.scheduler.speculation is not None:
            self.scheduler.speculation.cost.observe(
                plan.num_tokens, 1 + plan.num_tokens * (plan.step_id % 7) * self.token_time)
        if self.speed is None:
            return
        before = self.scheduler.budget.tokens
        self.scheduler.budget.observe(plan.num_tokens, 10 ** self.speed.uniform(-4, 2))
        self.counts["budgets"] += self.scheduler.budget.tokens != before

    def take_prompt_logprobs(self, part: PromptLogprobsPart) -> None:
        """Prompt logprobs reach their client: those that follow from the prompt, whatever happened on the way."""
        client = self.live[part.sequence_id]
        for position, logprob in enumerate(part.logprobs, part.start):
            assert logprob == made_logprob(client.chain[position], client.tokens[position]), "the logprobs changed"
            client.prompt_logprobs[position] = int(logprob)

    def deliver(self, sampled: Sampled) -> None:
        """A token reaches its client: the one that follows from all tokens before it, whatever happened on the way."""
        client = self.live[sampled.sequence_id]
        assert sampled.token_id == sample(client.chain[-1], client.salt, client.mask), "the answer changed"
        num_prompt_logprobs = client.sequence.prompt_length - 1
        assert not client.needs_prompt_logprobs, f"a token comes before {num_prompt_logprobs} prompt logprobs"
        client.tokens.append(sampled.token_id)
        extend(client.chain, sampled.token_id)
        if len(client.tokens) >= client.cleared_at:
            client.num_solo_deaths = 0
        is_full = len(client.tokens) == client.sequence.max_length
        is_eos = sampled.token_id == EOS and not client.sequence.ignore_eos
        is_end = is_eos or sampled.token_id in client.sequence.stop_token_ids
        reason = FinishReason.LENGTH if is_full else FinishReason.EOS_TOKEN if is_end else None
        assert sampled.finish_reason is reason
        if reason is not None:
            self.end(client, None)
        elif self.chance(0.05 if client.sequence.has_grammar else 0.01):
            self.end(client, self.random.choice([FinishReason.STOP_SEQUENCE, FinishReason.EOS_TOKEN]))

    def consider(self, found: Candidates) -> None:
        """Candidates reach the search of their beam."""
        raise AssertionError("there are no searches")

    def lose(self) -> None:
        """The group dies, and comes back: empty, or with the memory that it had. The step that ran may have written to
        it, though nobody will hear of its result."""
        rows = [(c, row) for flight in self.in_flight for c, row, _ in flight.rows if c.sequence.id in self.live]
        named = {c.sequence.id: c for c, _ in rows}
        for client in named.values():
            client.num_solo_deaths = client.num_solo_deaths + 1 if len(named) == 1 else 0
            num_samples = sum(row.output is Output.SAMPLE for c, row in rows if c is client)
            client.cleared_at = len(client.tokens) + max(1, num_samples)
        guilty = {id for id, client in named.items() if client.num_solo_deaths >= MAX_SOLO_DEATHS}
        if self.in_flight and self.chance(0.5):
            flight = self.in_flight[0]
            self.shard.run(flight.plan, flight.firsts, {})
        forgotten = self.scheduler.forget_all()
        self.adapters.lose()
        self.in_flight.clear()
        assert set(forgotten.given_up) == guilty, f"{forgotten.given_up} are given up, not {guilty}"
        for id in guilty & self.live.keys():
            self.end(self.live[id], None)
        assert all(c.sequence.status is Status.WAITING and c.sequence.tokens == c.tokens for c in self.live.values())
        assert self.scheduler.num_waiting == len(self.live)
        assert self.scheduler.memory.num_held == 0, "the group is gone, blocks are still in use"
        self.counts["losses"] += 1
        self.counts["given up"] += len(guilty)
        self.shard = self.shard.successor()
        if self.chance(0.4):
            num_blocks = self.random.randint(MAX_LENGTH, CAPACITY) // self.block_size
            self.scheduler.resize(num_blocks)
            self.shard = ShardMirror(self.block_size, num_blocks)
            self.counts["memories lost"] += 1
        self.check()

    def check(self) -> None:
        self.clock.came(client.sequence for client in self.live.values())
        self.present = {id: c for id, c in self.present.items() if c.sequence.slot is not None}
        check_scheduler(self.scheduler, self.in_flight, self.live.values(), self.present.values())
        self.cached = check_cached(self.scheduler, self.cached, self.shard)
