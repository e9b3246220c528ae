"""Answers that follow a grammar: masks that come late, in every order of events, and never hold up the loop."""

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.router.engine.engine import Engine
from penstock.router.engine.request import Request
from penstock.router.engine.stream import Event
from penstock.router.errors import GenerationError
from penstock.router.fleet.errors import FleetError
from penstock.router.grammar.matcher import GrammarError
from penstock.router.scheduling.finish_reason import FinishReason
from tests.eventually import until
from tests.fakes import FACTS, ScriptedFleet
from tests.scripted_engine import ListGrammar, bits, collect, first_allowed, running_engine, shifting, submit, token_ids

ALL = range(60, 100)
EOS = 2


def make_fleet(answer: Callable[[Row], int] = shifting) -> ScriptedFleet:
    return ScriptedFleet(answer, first_allowed)


def request(grammar: ListGrammar | None = None, max_new_tokens: int = 20) -> Request:
    return Request((10, 11, 12), Sampling(), max_new_tokens, grammar=grammar)


def assert_all_masked(fleet: ScriptedFleet) -> None:
    """One masks order for each step that waited for one, in order."""
    assert [step_id for step_id, _ in fleet.masks] == [plan.step_id for plan in fleet.plans if plan.masked]


def reason(events: list[Event]) -> FinishReason | None:
    ending = events[-1].ending
    return ending.finish_reason if ending is not None else None


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
async def test_an_answer_is_a_sentence_of_its_grammar_and_ends_with_it(depth: int) -> None:
    """Its masks are those of its own tokens, however many steps are in flight; no token comes after the last."""
    fleet = make_fleet()
    grammar = ListGrammar({80, 85}, {90}, {65, 66}, ALL, {99})
    async with running_engine(fleet, depth=depth) as engine:
        plain, guided = submit(engine, request()), submit(engine, request(grammar))
        events = await collect(guided)
        assert token_ids(events) == answer_of(request(grammar)) == [80, 90, 65, 89, 99]
        assert reason(events) is FinishReason.EOS_TOKEN
        assert all(event.ending is None for event in events[:-1])
        assert len(await collect(plain)) == 20
        assert not engine._requests
    assert_all_masked(fleet)
    assert [masks for _, masks in fleet.masks][:5] == [{1: bits(allowed)} for allowed in grammar.allowed]
    assert all(not masks for _, masks in fleet.masks[5:]), "rows that were planned ahead of the end"


@pytest.mark.parametrize(("allowed", "ignore_eos", "max_new_tokens", "expected"), [
    ([{80}, {EOS}, {90}], False, 9, ([80, EOS], FinishReason.EOS_TOKEN)),
    ([{80}, {EOS}], True, 9, ([80, EOS], FinishReason.EOS_TOKEN)),
    ([{80}, {90}, {81}], False, 2, ([80, 90], FinishReason.LENGTH)),
    ([{80}, {90}], False, 2, ([80, 90], FinishReason.LENGTH)),
])
async def test_other_ends(
    allowed: list[set[int]], ignore_eos: bool, max_new_tokens: int, expected: tuple[list[int], FinishReason],
) -> None:
    async with running_engine(make_fleet(), depth=2) as engine:
        events = await collect(submit(engine, replace(
            request(ListGrammar(*allowed), max_new_tokens), ignore_eos=ignore_eos)))
    assert (token_ids(events), reason(events)) == expected


async def test_a_stop_string_ends_within_a_grammar() -> None:
    async with running_engine(make_fleet(), depth=2) as engine:
        whole = await collect(submit(engine, request(ListGrammar({80}, {90}, {81}))))
        stop = whole[1].token.text
        events = await collect(submit(engine, replace(request(ListGrammar({80}, {90}, {81})), stop=(stop,))))
    assert (token_ids(events), reason(events)) == ([80, 90], FinishReason.STOP_SEQUENCE)


async def test_going_on_after_known_output() -> None:
    """The matcher is at the place where the output ends."""
    grammar = ListGrammar({80}, {90}, {81, 82}, {99})
    async with running_engine(make_fleet()) as engine:
        events = await collect(submit(engine, request(grammar), output_so_far=[80, 90]))
    assert (token_ids(events), reason(events)) == ([82, 99], FinishReason.EOS_TOKEN)
    assert events[-1].ending is not None
    assert events[-1].ending.num_tokens == 4


class Gate:
    """Holds masks back from the one with this number on."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.has_come = threading.Event()
        self.may_go = threading.Event()

    def __call__(self, number: int) -> None:
        if number >= self._number:
            self.has_come.set()
            assert self.may_go.wait(60)


async def test_while_a_mask_is_worked_out_others_get_their_tokens_and_the_next_step_is_sent() -> None:
    fleet, gate = make_fleet(), Gate(3)
    async with running_engine(fleet, depth=2) as engine:
        slow = submit(engine, request(ListGrammar(*[ALL] * 10, look=gate)))
        plain = submit(engine, request())
        await until(gate.has_come.is_set)
        for _ in range(3):
            await anext(plain)
            await anext(slow)
        await until(lambda: len(fleet.plans) == 5)
        assert len(fleet.masks) == 3
        gate.may_go.set()
        assert [len(events) for events in await asyncio.gather(collect(slow), collect(plain))] == [7, 17]
    assert_all_masked(fleet)


@pytest.mark.parametrize("is_solo", [False, True])
async def test_who_leaves_while_its_mask_is_worked_out_is_left_out_of_the_order(is_solo: bool) -> None:
    fleet, gate = make_fleet(), Gate(2)
    async with running_engine(fleet, depth=2) as engine:
        plain = None if is_solo else asyncio.create_task(collect(submit(engine, request())))
        async with submit(engine, request(ListGrammar(*[ALL] * 10, look=gate))):
            await until(gate.has_come.is_set)
        gate.may_go.set()
        if plain is not None:
            assert len(await plain) == 20
        assert len(await collect(submit(engine, request(max_new_tokens=1)))) == 1
    assert_all_masked(fleet)
    assert [len(masks) for _, masks in fleet.masks] == [1, 1, 0, 0]


class Limited(ListGrammar):
    """Fails with an error, at the first of its masks or a later one."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(*[ALL] * 10, look=self._fail)
        self._number = number
        self._error = error

    def _fail(self, number: int) -> None:
        if number == self._number:
            raise self._error


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(("grammar", "num_tokens", "message"), [
    (Limited(0, GrammarError("too much work")), 0, "the grammar can't be followed any further: too much work"),
    (Limited(3, GrammarError("too much work")), 3, "the grammar can't be followed any further: too much work"),
    (Limited(3, ZeroDivisionError()), 3, "ZeroDivisionError in the grammar"),
])
async def test_a_grammar_that_fails_ends_its_answer_alone(
    depth: int, grammar: ListGrammar, num_tokens: int, message: str,
) -> None:
    fleet = make_fleet()
    async with running_engine(fleet, depth=depth) as engine:
        others = [asyncio.create_task(collect(submit(engine, request(other)))) for other in (
            None, ListGrammar(*[ALL] * 9))]
        stream = submit(engine, request(grammar))
        for _ in range(num_tokens):
            await anext(stream)
        with pytest.raises(GenerationError, match=message):
            await anext(stream)
        assert [len(events) for events in await asyncio.gather(*others)] == [20, 9]
        assert not engine._requests
    assert_all_masked(fleet)


async def test_a_token_that_the_grammar_refuses_ends_the_answer() -> None:
    """As when a limit is met while it is taken in."""
    async with running_engine(ScriptedFleet(shifting), depth=2) as engine:
        with pytest.raises(GenerationError, match="91 is not allowed at 0"):
            await collect(submit(engine, request(ListGrammar({80}, {90}))))


@pytest.mark.parametrize("where", ["submit", "submit_masks", "next_result"])
@pytest.mark.parametrize("depth", [1, pytest.param(2, marks=pytest.mark.every_case), 3])
async def test_a_loss_at_any_time_is_a_pause(depth: int, where: str) -> None:
    """No token is lost that its grammar had not seen yet, and none comes twice."""
    fleet = make_fleet()
    grammar = ListGrammar(*[ALL] * 12)
    async with running_engine(fleet, depth=depth) as engine:
        expected = [await collect(submit(engine, request(each))) for each in (grammar, None)]
        for number in (1, 2, 4, 7):
            fleet.fail_at(where, number)
            streams = [submit(engine, request(each)) for each in (grammar, None)]
            assert await asyncio.gather(*map(collect, streams)) == expected
        assert fleet.failure is None


async def test_a_request_with_a_grammar_that_kills_is_found() -> None:
    def deadly(row: Row) -> int:
        if 13 in row.token_ids:
            fleet.failure = FleetError("shard 0 died")
        return shifting(row)

    fleet = make_fleet(deadly)
    fleet.answer_masked = lambda row, mask: deadly(row)
    async with running_engine(fleet, depth=2) as engine:
        fine = asyncio.create_task(collect(submit(engine, request(ListGrammar(*[ALL] * 12)))))
        with pytest.raises(GenerationError, match="3 times in a row the shards died"):
            await collect(submit(engine, replace(request(ListGrammar(*[ALL] * 12)), input_ids=(13, 13))))
        assert len(await fine) == 12


class Traffic:
    """Requests of every kind that come, leave and are lost with their group, by a seed."""

    def __init__(self, seed: int, depth: int) -> None:
        self.random = random.Random(seed)
        self.depth = depth
        self.fleet = make_fleet()
        self.fleet.facts = self.facts = replace(FACTS, num_blocks=48)
        self.num_ended = 0

    async def run(self, num_requests: int) -> None:
        async with running_engine(self.fleet, depth=self.depth, facts=self.facts) as engine:
            tasks = []
            for _ in range(num_requests):
                tasks.append(asyncio.create_task(self.ask(engine)))
                await asyncio.sleep(0)
                due = len(self.fleet.plans) + self.random.randint(0, 3)
                await until(lambda due=due: len(self.fleet.plans) >= due or not engine._requests)  # type: ignore[misc]
                if self.random.random() < 0.2 and not engine._scheduler.suspects._cohorts:
                    self.fleet.fail_at(self.random.choice(["submit", "submit_masks", "next_result"]), 1)
            await asyncio.gather(*tasks)
            assert not engine._requests
            await until(lambda: not engine._in_flight)
            assert engine._scheduler.memory.num_held == 0

    async def ask(self, engine: Engine) -> None:
        """Some leave early; who stays gets exactly the tokens of an answer that is computed alone."""
        length = self.random.randint(1, 150)
        allowed = [self.random.sample(ALL, 3) for _ in range(length)]
        grammar = ListGrammar(*allowed) if self.random.random() < 0.6 else None
        start = self.random.choice([3, self.random.randint(100, 2000)])
        prompt = tuple(range(start, start + self.random.choice([5, 40, 300])))
        asked = Request(prompt, Sampling(), max_new_tokens=self.random.randint(1, 150), grammar=grammar,
                        wants_prompt_logprobs=self.random.random() < 0.2)
        expected = answer_of(asked)
        patience = self.random.randint(1, 100) if self.random.random() < 0.3 else len(expected)
        received: list[int] = []
        async with submit(engine, asked) as stream:
            async for event in stream:
                if asked.wants_prompt_logprobs:
                    assert stream.prompt_logprobs.logprobs == [-token_id / 10 for token_id in prompt[1:]]
                received.append(event.token.id)
                if len(received) >= patience:
                    break
        assert received == expected[:patience]
        self.num_ended += patience >= len(expected)


def answer_of(asked: Request) -> list[int]:
    """What the fleet answers to a request that runs alone."""
    sets = asked.grammar.allowed if isinstance(asked.grammar, ListGrammar) else [None] * asked.max_new_tokens
    rows = [Row(slot=0, start=len(asked.input_ids) + index - 1, from_last_sample=True) for index in range(len(sets))]
    answer = [shifting(row) if allowed is None else first_allowed(row, bits(allowed))
              for row, allowed in zip(rows, sets, strict=True)]
    return answer[:asked.max_new_tokens]


@pytest.mark.parametrize("depth", [*(pytest.param(depth, marks=pytest.mark.slow) for depth in (1, 2, 3)), 4])
@pytest.mark.parametrize("seed", [
    1, pytest.param(2, marks=pytest.mark.slow),
    *(pytest.param(seed, marks=[pytest.mark.slow, pytest.mark.every_case]) for seed in range(3, 8))])
async def test_traffic_of_every_kind(seed: int, depth: int, every_case: bool) -> None:
    """The fleet answers no step before its one masks order, so what is missing shows as a test that never ends."""
    num_requests = 120 if every_case else 60
    traffic = Traffic(seed, depth)
    await traffic.run(num_requests)
    plans = traffic.fleet.plans
    assert traffic.num_ended > num_requests / 2
    assert sum(len(plan.preempted) for plan in plans), "memory was never short"
    assert sum(plan.step_id == 0 for plan in plans) > num_requests / 40, "the group was never lost"
