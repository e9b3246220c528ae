"""The engine over a scripted fleet: delivery, cancellation, failure, going on after known output."""

import asyncio
from dataclasses import replace

import pytest

from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.engine.text_path import Piece, TextPath
from penstock.router.errors import GenerationError, Unhealthy
from penstock.router.fleet.errors import FleetError
from penstock.router.scheduling.finish_reason import FinishReason
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.scripted_engine import TOKENIZER, collect, running_engine, running_groups, shifting, submit

EOS = 2


def request(
    max_new_tokens: int = 5, stop: tuple[str, ...] = (), input_ids: tuple[int, ...] = (10, 11, 12)
) -> Request:
    return Request(input_ids=input_ids, sampling=Sampling(), max_new_tokens=max_new_tokens, stop=stop)


def counting(row: Row) -> int:
    return 70 + (row.start + row.num_inputs) % 3


@pytest.mark.parametrize("depth", [1, 2])
async def test_tokens_arrive_in_order_and_the_last_has_the_ending(depth: int) -> None:
    async with running_engine(ScriptedFleet(counting), depth=depth) as engine:
        events = await collect(submit(engine, request(4)))
    assert [event.token.id for event in events] == [70, 71, 72, 70]
    assert [event.ending is None for event in events] == [True, True, True, False]
    assert events[-1].ending is not None
    assert events[-1].ending.finish_reason is FinishReason.LENGTH
    assert events[-1].ending.text == "".join(event.token.text for event in events)
    assert events[-1].ending.num_tokens == 4


async def test_the_end_token_is_special_and_not_in_the_text() -> None:
    async with running_engine(ScriptedFleet(lambda row: EOS if row.start else 70)) as engine:
        events = await collect(submit(engine, request()))
    ending = events[-1].ending
    assert ending is not None
    assert (ending.finish_reason, ending.text) == (FinishReason.EOS_TOKEN, TOKENIZER.decode([70]))
    assert (events[-1].token.is_special, events[-1].token.text) == (True, "<|im_end|>")


async def test_a_stop_string_ends_the_sequence_in_the_scheduler_too() -> None:
    fleet = ScriptedFleet(counting)
    stop = TOKENIZER.decode([71, 72])
    async with running_engine(fleet) as engine:
        events = await collect(submit(engine, request(100, stop=(stop,))))
        num_plans = len(fleet.plans)
        await collect(submit(engine, request(1)))
    assert [event.token.id for event in events] == [70, 71, 72]
    assert events[-1].ending is not None
    assert events[-1].ending.finish_reason is FinishReason.STOP_SEQUENCE
    assert num_plans == 3
    assert fleet.plans[-1].cleared_slots == (0,)


async def test_a_reader_that_leaves_ends_its_sequence() -> None:
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet) as engine:
        async with submit(engine, request(1000)) as stream:
            async for _ in stream:
                break
        await collect(submit(engine, request(1)))
        assert len(fleet.plans) < 10
        assert fleet.plans[-1].cleared_slots == (0,)


async def test_going_on_after_known_output() -> None:
    """The answer is the one of an undisturbed run; the known tokens are not streamed again."""
    async with running_engine(ScriptedFleet(counting)) as engine:
        whole = await collect(submit(engine, request(5)))
        rest = await collect(submit(engine, request(5), output_so_far=[event.token.id for event in whole[:2]]))
    assert rest == whole[2:]


async def test_what_fails_in_the_text_path_ends_alone() -> None:
    class Failing(TextPath):
        def push(self, token_id: int) -> Piece:
            if self.text:
                raise RuntimeError("boom")
            return super().push(token_id)

    async with running_engine(ScriptedFleet(counting)) as engine:
        failing, fine = submit(engine, request(7), start_text=Failing), submit(engine, request(6))
        with pytest.raises(GenerationError, match="RuntimeError in the text path"):
            await collect(failing)
        assert len(await collect(fine)) == 6


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_a_lost_group_is_a_pause(depth: int) -> None:
    fleet = ScriptedFleet(shifting)
    async with running_engine(fleet, depth=depth) as engine:
        undisturbed = await collect(submit(engine, request(40)))
        streams = [asyncio.create_task(collect(submit(engine, request(40)))) for _ in range(3)]
        for _ in range(3):
            num_plans = len(fleet.plans)
            while len(fleet.plans) < num_plans + 5:
                await asyncio.sleep(0)
            fleet.failure = FleetError("shard 1 is gone")
        assert await asyncio.gather(*streams) == [undisturbed] * 3
        assert fleet.failure is None
        assert engine.is_healthy


async def test_requests_wait_for_a_group_that_is_away() -> None:
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet) as engine:
        await collect(submit(engine, request(1)))
        fleet.may_open.clear()
        stream = submit(engine, request(5))
        fleet.failure = FleetError("shard 0 is gone")
        await asyncio.sleep(0.1)
        late = submit(engine, request(5))
        assert engine.is_healthy
        fleet.may_open.set()
        assert [len(await collect(waiting)) for waiting in (stream, late)] == [5, 5]


async def test_a_group_that_stays_away_fails_what_waits_and_comes_back_clean() -> None:
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet, max_downtime=0.1) as engine:
        await collect(submit(engine, request(1)))
        fleet.may_open.clear()
        stream = submit(engine, request(5))
        fleet.failure = FleetError("shard 0 is gone")
        with pytest.raises(Unhealthy):
            await collect(stream)
        assert not engine.is_healthy
        with pytest.raises(Unhealthy):
            submit(engine, request())
        fleet.may_open.set()
        while not engine.is_healthy:
            await asyncio.sleep(0.01)
        assert len(await collect(submit(engine, request(5)))) == 5


@pytest.mark.parametrize("name", ["weights", "settings"])
async def test_a_group_of_another_model_is_a_fault(name: str) -> None:
    """Tokens of two models must not end up in one answer: the router ends, and a new one learns the new facts."""
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet) as engine:
        stream = submit(engine, request(1000))
        fleet.facts = replace(FACTS, **{f"{name}_digest": "1"})
        fleet.failure = FleetError("shard 0 is gone")
        with pytest.raises(GenerationError, match=f"the model was replaced by another one, whose {name} are others$"):
            await collect(stream)
        assert not engine.is_healthy


async def test_a_group_with_less_memory_serves_what_fits() -> None:
    """One request has more tokens already than fit now, one grows to all that fits, and one fits."""
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet) as engine:
        streams = [submit(engine, request(1000)) for _ in range(2)]
        short = submit(engine, request(30))
        await anext(streams[0])
        fleet.facts = replace(FACTS, num_blocks=3)
        fleet.failure = FleetError("shard 0 is gone")
        for stream in streams:
            with pytest.raises(GenerationError, match="with KV memory for 48 tokens, and this request needs more"):
                await collect(stream)
        assert len(await collect(short)) == 30
        assert (engine.limits.max_total_tokens, engine.limits.max_input_tokens) == (48, 47)
        with pytest.raises(GenerationError, match="this request needs more"):
            submit(engine, request(10, input_ids=tuple(range(4, 60))))
        fleet.facts = FACTS
        fleet.failure = FleetError("shard 0 is gone")
        assert len(await collect(submit(engine, request(500)))) == 500
        assert engine.limits == LIMITS


async def test_what_has_more_tokens_than_fit_now_fails_at_once() -> None:
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet) as engine:
        stream = submit(engine, request(1000))
        for _ in range(100):
            await anext(stream)
        fleet.facts = replace(FACTS, num_blocks=4, memory_id="two")
        fleet.failure = FleetError("shard 0 is gone")
        with pytest.raises(GenerationError, match="again with KV memory for 64 tokens"):
            await collect(stream)


async def test_memory_that_is_as_before_is_not_computed_again() -> None:
    """48 tokens are in full blocks, whose results had come back; memory with another name holds none of them."""
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet) as engine:
        stream = submit(engine, request(900, input_ids=tuple(range(4, 54))))
        for name, start in (("one", 48), ("two", 0)):
            await anext(stream)
            fleet.plans.clear()
            fleet.facts = replace(FACTS, memory_id=name)
            fleet.failure = FleetError("shard 0 is gone")
            while not any(row.initial_state for plan in fleet.plans for row in plan.rows):
                await anext(stream)
            [row] = [row for plan in fleet.plans for row in plan.rows if row.initial_state]
            assert row.start == start


async def test_the_memory_follows_the_group() -> None:
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet) as engine:
        for num_blocks, expected in ((70, 70), (100, 100), (300, FACTS.num_blocks)):
            fleet.facts = replace(FACTS, num_blocks=num_blocks)
            fleet.failure = FleetError("shard 0 is gone")
            assert len(await collect(submit(engine, request(3)))) == 3
            assert engine._scheduler.memory.pool.num_blocks == engine.facts.num_blocks == expected


async def test_a_request_that_kills_is_found_and_the_others_finish() -> None:
    def deadly(row: Row) -> int:
        if 13 in row.token_ids:
            fleet.failure = FleetError("shard 0 died")
        return shifting(row)

    fleet = ScriptedFleet(deadly)
    async with running_engine(fleet) as engine:
        undisturbed = await collect(submit(engine, request(30)))
        others = [asyncio.create_task(collect(submit(engine, request(30)))) for _ in range(4)]
        poisoned = submit(engine, Request(input_ids=(13, 13), sampling=Sampling(), max_new_tokens=3))
        with pytest.raises(GenerationError, match="3 times in a row the shards died"):
            await collect(poisoned)
        assert await asyncio.gather(*others) == [undisturbed] * 4


async def test_what_is_given_up_fails_and_frees_its_blocks() -> None:
    async with running_engine(ScriptedFleet(counting)) as engine:
        stream = submit(engine, request(1000))
        await anext(stream)
        engine.give_up()
        with pytest.raises(Unhealthy):
            await collect(stream)
        with pytest.raises(Unhealthy):
            submit(engine, request())
        while engine._in_flight:
            await asyncio.sleep(0)
        assert engine._scheduler.memory.num_held == 0


async def test_a_fault_of_our_own_fails_every_request_and_ends_the_task() -> None:
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet) as engine:
        stream = submit(engine, request(1000))
        fleet.failure = ZeroDivisionError("a bug")
        with pytest.raises(GenerationError, match="a bug"):
            await collect(stream)
        assert not engine.is_healthy


async def test_a_late_request_joins_the_running_ones() -> None:
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet) as engine:
        first = asyncio.create_task(collect(submit(engine, request(50))))
        fleet.may_answer.clear()
        await fleet.has_plan.wait()
        second = asyncio.create_task(collect(submit(engine, request(5))))
        fleet.may_answer.set()
        assert [len(events) for events in await asyncio.gather(first, second)] == [50, 5]
    assert max(len(plan.rows) for plan in fleet.plans) == 2


@pytest.mark.parametrize(("depth", "num_stages", "num_steps"), [
    (None, 1, 2), (None, 4, 4), (1, 1, 1), (1, 4, 1), (3, 4, 3)])
async def test_so_many_steps_are_in_flight(depth: int | None, num_stages: int, num_steps: int) -> None:
    fleet = ScriptedFleet(counting)
    fleet.may_answer.clear()
    fleet.facts = replace(FACTS, num_stages=num_stages)
    async with running_engine(fleet, depth=depth, facts=fleet.facts) as engine:
        prompts = [tuple(range(100 * number, 100 * number + 200)) for number in range(8)]
        streams = [submit(engine, request(input_ids=prompt)) for prompt in prompts]
        await asyncio.sleep(0.1)
        assert len(fleet.plans) == num_steps
        fleet.may_answer.set()
        await asyncio.gather(*map(collect, streams))


@pytest.mark.parametrize("depth", [1, 2])
async def test_answers_to_one_prompt_share_what_is_computed(depth: int) -> None:
    """Of 100 tokens the last 4 are in no full block: 3 of the 4 answers compute those and nothing else."""
    fleet = ScriptedFleet(counting)
    asked = Request(input_ids=tuple(range(100, 200)), sampling=Sampling(), max_new_tokens=4)
    async with running_engine(fleet, depth=depth) as engine:
        answers = [replace(asked, sampling=Sampling(branch=branch)) for branch in range(4)]
        streams = [submit(engine, answer) for answer in answers]
        await asyncio.gather(*map(collect, streams))
    assert sum(len(row.token_ids) for plan in fleet.plans for row in plan.rows) == 100 + 3 * 4
    assert [stream.hit_tokens for stream in streams] == [0, 96, 96, 96]


@pytest.mark.parametrize("ignore_eos", [False, True])
async def test_a_stop_token_ends_as_the_end_token_does(ignore_eos: bool) -> None:
    async with running_engine(ScriptedFleet(counting), depth=2) as engine:
        events = await collect(submit(engine, replace(
            request(100), stop_token_ids=frozenset({72}), ignore_eos=ignore_eos)))
    assert [event.token.id for event in events] == [70, 71, 72]
    assert events[-1].ending is not None
    assert events[-1].ending.finish_reason is FinishReason.EOS_TOKEN


async def test_the_likeliest_tokens_come_with_each_token() -> None:
    async with running_engine(ScriptedFleet(counting)) as engine:
        events = await collect(submit(engine, replace(request(2), sampling=Sampling(top_n=2))))
    assert [event.token.top_logprobs for event in events] == [((70, -0.5), (71, -1.5)), ((71, -0.5), (72, -1.5))]


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_the_prompt_logprobs_are_whole_before_its_first_token(depth: int) -> None:
    """In chunks of 256 or less, with the group lost on the way."""
    fleet = ScriptedFleet(shifting)
    asked = Request(tuple(range(3, 1003)), Sampling(top_n=1), max_new_tokens=2, wants_prompt_logprobs=True)
    async with running_engine(fleet, depth=depth) as engine:
        for num_plans in (1, 2, 3):
            stream = submit(engine, asked)
            so_far = len(fleet.plans)
            while len(fleet.plans) < so_far + num_plans:
                await asyncio.sleep(0)
            fleet.failure = FleetError("shard 1 is gone")
            async for _ in stream:
                assert stream.prompt_logprobs.logprobs == [-token_id / 10 for token_id in range(4, 1003)]
                assert stream.prompt_logprobs.top_logprobs == [((token_id, -0.5),) for token_id in range(4, 1003)]


async def test_what_runs_is_stalled_while_no_step_comes_back() -> None:
    fleet = ScriptedFleet(counting)
    async with running_engine(fleet, depth=2) as engine:
        assert engine.stalled_seconds() == 0, "nothing runs"
        stream = submit(engine, request(1000))
        await anext(stream)
        fleet.may_answer.clear()
        await asyncio.sleep(0.1)
        stalled = engine.stalled_seconds()
        assert 0.05 < stalled < 10
        fleet.may_answer.set()
        await anext(stream)
        await anext(stream)
        assert engine.stalled_seconds() < stalled, "it has got on since"
        fleet.may_open.clear()
        fleet.failure = FleetError("shard 0 is gone")
        while engine._scheduler.num_running:
            await asyncio.sleep(0)
        assert engine.stalled_seconds() == 0, "nothing runs while the group is away"


async def test_a_group_that_is_lost_while_it_rests_is_noticed_at_once() -> None:
    fleet = ScriptedFleet(counting)
    async with running_groups(fleet) as groups:
        await collect(submit(groups, request(3)))
        fleet.may_open.clear()
        fleet.is_lost.set()
        async with asyncio.timeout(1):
            while groups.has_group:
                await groups.changed.wait()
                groups.changed.clear()
        fleet.may_open.set()
        assert len(await collect(submit(groups, request(3)))) == 3
        assert groups.has_group
