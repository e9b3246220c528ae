"""A front's streams are as those of the engine itself."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.contract.row_result import OtherResult
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.engine.engine import Engine
from penstock.router.engine.request import Request
from penstock.router.engine.trace import Trace
from penstock.router.errors import (
    AdapterNotFound,
    GenerationError,
    InvalidAdapter,
    KilledGroup,
    Overloaded,
    RouterError,
    Unhealthy,
    ValidationError,
)
from penstock.router.fleet.errors import FleetError
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.spec import GenerationSpec
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec, ThinkingRule, ThinkingSpec
from penstock.router.grants import Rate
from penstock.router.metrics.metrics import Metrics
from penstock.router.rates import TooFast, Use
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.suspects import MAX_SOLO_DEATHS
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.router.adapters.folders import write_adapter
from tests.router.front.fronts import (
    ASKED,
    LISTED,
    ListGrammars,
    ThinkingGrammars,
    front,
    make_fleet,
    serving,
    until,
)
from tests.scripted_engine import ListGrammar, collect, shifting, submit, token_ids


@pytest.mark.parametrize("asked", [
    ASKED, replace(ASKED, sampling=Sampling(top_n=2)), replace(ASKED, wants_prompt_logprobs=True),
    replace(ASKED, input_ids=tuple(range(10, 50)), sampling=Sampling(top_n=1), wants_prompt_logprobs=True),
    replace(ASKED, salt="a", sampling=Sampling(
        allowed_ids=(5, 6), bad_word_ids=(7, 8), bad_word_lengths=(2,))), replace(ASKED, max_new_tokens=1)])
async def test_a_stream_is_as_the_engines_own(path: Path, asked: Request) -> None:
    async with serving(path) as (engine, _), front(path) as remote:
        own, other = submit(engine, asked), submit(remote, asked)
        assert await collect(own) == await collect(other)
        assert own.prompt_logprobs == other.prompt_logprobs
        assert (other.started_at is not None, other.hit_tokens) == (True, 0)
        again = submit(remote, asked)
        await collect(again)
        assert again.hit_tokens == (0 if asked.wants_prompt_logprobs else len(asked.input_ids) // 16 * 16)
        assert not remote._requests
        assert not remote._outputs


async def test_many_streams_of_two_fronts(path: Path) -> None:
    asked = [replace(ASKED, input_ids=(10, 11, each), max_new_tokens=10 + each) for each in range(40)]
    async with serving(path) as (engine, _), front(path) as one, front(path) as two:
        own = [await collect(submit(engine, each)) for each in asked]
        streams = [submit((one, two)[number % 2], each) for number, each in enumerate(asked)]
        assert await asyncio.gather(*map(collect, streams)) == own


async def test_a_stop_string_ends_the_request_in_the_engine(path: Path) -> None:
    fleet = make_fleet()
    async with serving(path, fleet) as (engine, _), front(path) as remote:
        whole = await collect(submit(engine, ASKED))
        events = await collect(submit(remote, replace(ASKED, stop=(whole[4].token.text,), max_new_tokens=1000)))
        assert events[-1].ending is not None
        assert events[-1].ending.finish_reason is FinishReason.STOP_SEQUENCE
        assert token_ids(events) == token_ids(whole)[:len(events)]
        await until(lambda: not engine.members[0].engine._requests)
        assert engine.members[0].engine._scheduler.num_running == 0
        assert len(fleet.plans) < 500, "it has ended long before its last token"


async def test_a_client_that_leaves_ends_its_request(path: Path) -> None:
    async with serving(path) as (engine, _), front(path) as remote:
        async with submit(remote, replace(ASKED, max_new_tokens=1000)) as stream:
            await anext(stream)
        assert not remote._requests
        await until(lambda: not engine.members[0].engine._requests)


async def test_permits_are_of_all_fronts(path: Path) -> None:
    most = LIMITS.max_concurrent_requests
    async with serving(path) as (engine, _), front(path) as one, front(path) as two:
        async with one.permit(most - 1), two.permit():
            with pytest.raises(Overloaded, match="Model is overloaded"):
                await two.permit().__aenter__()
        await until(lambda: engine._permits == most)
        waiting = asyncio.ensure_future(one.permit(3).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with two.permit():
            await until(lambda: engine._permits == most - 1)  # the three came when their client had left


async def test_grammars_are_compiled_and_followed_in_the_engines_process(path: Path) -> None:
    grammars = ListGrammars()
    async with serving(path, grammars=grammars) as _, front(path) as remote:
        assert await remote.grammars.compile(LISTED) == LISTED
        with pytest.raises(GrammarError, match="it is not the one"):
            await remote.grammars.compile(GrammarSpec("regex", "a"))
        events = await collect(submit(remote, replace(ASKED, grammar=LISTED)))
        assert token_ids(events) == [80, 90, 81]
        assert events[-1].ending is not None
        assert events[-1].ending.finish_reason is FinishReason.EOS_TOKEN


async def test_budgets_of_thinking_hold_in_the_engines_process(path: Path) -> None:
    rule = ThinkingRule("<t>", "</t>", (60, 116, 62), (60, 47, 116, 62), is_open=True, budget=3)
    asked = replace(ASKED, grammar=ThinkingSpec(LISTED.kind, LISTED.source, rule))
    async with serving(path, grammars=ThinkingGrammars()) as _, front(path) as remote:
        assert token_ids(await collect(submit(remote, asked)))[3:] == [60, 47, 116, 62, 80, 90, 81]


async def test_a_grammar_that_can_not_be_compiled_any_more_ends_its_request_alone(path: Path) -> None:
    class Broken(ListGrammars):
        async def compile(self, spec: GrammarSpec) -> ListGrammar:
            if spec != LISTED:
                raise ZeroDivisionError
            raise GrammarError("it takes too long")

    async with serving(path, grammars=Broken()) as _, front(path) as remote:
        with pytest.raises(GenerationError, match="the grammar can't be compiled any more: it takes too long"):
            await collect(submit(remote, replace(ASKED, grammar=LISTED)))
        with pytest.raises(RouterError):
            await collect(submit(remote, replace(ASKED, grammar=GrammarSpec("regex", "a"))))
        assert len(await collect(submit(remote, ASKED))) == 30


async def test_what_a_key_uses_counts_for_all_fronts(path: Path) -> None:
    use = Use("alice", Rate(2, "h"), Rate(100, "h"), num_requests=1)
    async with serving(path) as (_, server), front(path) as one, front(path) as two:
        await one.rates.take(use)
        await two.rates.take(use)
        with pytest.raises(TooFast) as refused:
            await one.rates.take(use)
        assert (refused.value.status, 1700 < (refused.value.retry_after or 0) <= 1800) == (429, True)
        one.rates.note(Use("alice", None, use.token_rate, num_tokens=150))
        await until(lambda: ("alice", "tokens") in server.rates._levels)
        with pytest.raises(TooFast, match="tokens"):
            await two.rates.take(Use("alice", None, use.token_rate))


async def test_no_permits_can_always_be_had(path: Path) -> None:
    async with serving(path) as (engine, _), front(path) as remote:
        engine.take_permits(LIMITS.max_concurrent_requests + 3, may_exceed=True)
        async with remote.permit(0), engine.permit(0):
            pass
        with pytest.raises(Overloaded):
            await remote.permit().__aenter__()


async def test_permits_that_come_after_all_was_given_up_go_back(path: Path) -> None:
    async with serving(path) as (engine, _), front(path) as remote:
        asked = asyncio.ensure_future(remote.permit(2).__aenter__())
        await asyncio.sleep(0)
        remote.give_up()
        with pytest.raises(Unhealthy):
            await asked
        async with remote.permit():
            await until(lambda: engine._permits == LIMITS.max_concurrent_requests - 1)
        await until(lambda: engine._permits == LIMITS.max_concurrent_requests)


async def test_fronts_follow_the_group(path: Path) -> None:
    fleet = make_fleet()
    async with serving(path, fleet, max_downtime=0.1) as (engine, _), front(path) as remote:
        await until(lambda: remote.has_group)
        assert (remote.facts, remote.limits) == (engine.facts, engine.limits)
        assert remote.num_slots == engine.num_slots == LIMITS.max_slots
        fleet.may_open.clear()
        fleet.is_lost.set()
        await until(lambda: not remote.has_group)
        with pytest.raises(Unhealthy):
            await collect(submit(remote, ASKED))
        await until(lambda: not remote.is_healthy)
        with pytest.raises(Unhealthy):
            submit(remote, ASKED)
        fleet.is_lost.clear()
        fleet.may_open.set()
        await until(lambda: remote.is_healthy and remote.has_group)
        assert len(await collect(submit(remote, ASKED))) == 30
        assert await remote.stalled_seconds() == 0


async def test_errors_keep_their_kind_and_their_words(path: Path) -> None:
    """A request that kills the group is given up, and all fronts remember it."""
    killer = replace(ASKED, input_ids=(13, 13))
    spec = GenerationSpec("kill", Parameters())

    class Fragile(ScriptedFleet):
        async def next_result(self) -> Any:
            if any(13 in row.token_ids for row in self._pending[0].rows):
                raise FleetError("a shard died")
            return await super().next_result()

    async with serving(path, Fragile(shifting)), front(path) as one, front(path) as two:
        with pytest.raises(KilledGroup, match=f"^Request failed during generation: Server error: {MAX_SOLO_DEATHS} "):
            await collect(submit(one, killer))
        one.poison.remember(spec)
        await until(lambda: two.poison._ends)
        with pytest.raises(GenerationError, match="the shards died whenever they ran this request"):
            two.poison.check(spec)


async def test_adapters_are_those_of_the_engines_process(path: Path, tmp_path: Path) -> None:
    registry = Registry([AdapterSource("a", write_adapter(tmp_path / "a"), "a")], max_bytes=1 << 20)
    fleet = make_fleet()
    async with AsyncExitStack() as stack:
        first = AsyncExitStack()
        await first.enter_async_context(serving(path, fleet, registry))
        one, two = await stack.enter_async_context(front(path)), await stack.enter_async_context(front(path))
        await until(lambda: "a" in one.adapters and "a" in two.adapters)
        with pytest.raises(ValidationError, match="`adapter_id` must be one of `a`"):
            one.adapters.check("b")
        found = await one.adapters.get("a")
        assert len(await collect(submit(one, replace(ASKED, adapter=found)))) == 30
        assert set(fleet.slot_adapters.values()) == {found.number}
        with pytest.raises(InvalidAdapter, match="has already been loaded"):
            await one.adapters.add(AdapterSource("a", tmp_path / "a", "a"))
        await one.adapters.add(AdapterSource("b", write_adapter(tmp_path / "b", fill=2), "b"))
        await two.adapters.remove("a")
        await until(lambda: [each.name for each in one.adapters] == [each.name for each in two.adapters] == ["b"])
        with pytest.raises(AdapterNotFound, match="The lora adapter 'a' was unloaded"):
            one.adapters.named("a")
        with pytest.raises(AdapterNotFound, match="cannot be found"):
            await two.adapters.remove("a")
        running = submit(two, replace(ASKED, adapter=await two.adapters.get("b"), max_new_tokens=200))
        removed = submit(two, replace(ASKED, adapter=found, max_new_tokens=200))
        await anext(running)
        await anext(removed)
        await first.aclose()
        again = Registry([AdapterSource("a", tmp_path / "a", "a")], max_bytes=1 << 20)
        await stack.enter_async_context(serving(path, make_fleet(), again))
        assert len(await collect(running)) == 199, "the next process was told of the adapter that was added"
        assert len(await collect(removed)) == 199, "what was taken is answered"
        await until(lambda: [each.name for each in one.adapters] == ["b"])


async def test_requests_are_for_the_kind_of_group_with_the_least_to_do(path: Path) -> None:
    """Those of fronts, too, though nothing but the load has changed."""
    fleet = make_fleet()
    fleet.may_answer.clear()
    async with serving(path, fleet) as (groups, _), front(path) as remote:
        metrics, facts = Metrics(LIMITS), replace(FACTS, numerics="other")
        other = make_fleet()
        other.facts = facts
        groups.add(Engine(other, facts, LIMITS, metrics, is_one_of_many=True, name="other"))
        await until(lambda: len(remote.kinds) == 2)
        stream = submit(groups, ASKED)
        async with asyncio.timeout(2):  # before a group counts as stuck
            await until(lambda: remote.kinds[0].numerics == "other")
            fleet.may_answer.set()
            other.may_answer.clear()
            await collect(stream)
            held = submit(groups, replace(ASKED, bits=facts.bits, needs_bits=True))
            await until(lambda: remote.kinds[0].numerics != "other")
        other.may_answer.set()
        await collect(held)


async def test_a_trace_has_what_happens_in_the_engines_process(path: Path) -> None:
    fleet = make_fleet()
    async with serving(path, fleet), front(path) as remote:
        trace = Trace(b"t" * 24)
        stream = submit(remote, replace(ASKED, trace=trace))
        await anext(stream)
        fleet.fail_at("next_result", 2)
        await collect(stream)
        assert [note.name for note in trace.notes] == ["prefill_chunk", "replay", "prefill_chunk"]
        assert trace.notes[0].facts == {"start": 0, "tokens": 3}


class OtherResults(ScriptedFleet):
    """Makes a result of a made-up kind in each row, beside its token."""

    async def next_result(self) -> StepResult:
        result = await super().next_result()
        return replace(result, rows=tuple(
            row._replace(others=(OtherResult("made up", bytes(row.token_ids)),)) for row in result.rows))


async def test_results_of_any_kind_arrive(path: Path) -> None:
    """One that is made again, for its group was lost, is the same."""
    fleet = OtherResults(shifting)
    async with serving(path, fleet), front(path) as remote:
        stream = submit(remote, ASKED)
        first = await anext(stream)
        fleet.fail_at("next_result", 2)
        tokens = token_ids([first, *await collect(stream)])
        assert stream.others == {("made up", 3 + index): bytes([token_id]) for index, token_id in enumerate(tokens)}
