"""The explanation of a request names what was planted to hold it up, first of all, and for how long it did."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoints.adapter_files import CONFIG
from penstock.router.adapters.files import AdapterFiles
from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.explaining.causes import causes_of
from penstock.router.explaining.story import Story
from penstock.router.fleet.errors import FleetError
from penstock.router.generation.request_record import waiting
from penstock.router.scheduling.usage import Usage
from penstock.router.scheduling.wait_reasons import WaitReason
from penstock.router.scheduling.waits import Return
from tests.fakes import FACTS
from tests.router.explaining.planted import STEP, Explanation, Planted, TimedFleet, live

NEAR = 0.06
"""The seconds of a few steps, and of work in other threads, which nobody planted."""


def first(told: Explanation) -> tuple[str, float]:
    cause = told["causes"][0]
    return cause["cause"], cause["seconds"]


def of(told: Explanation, name: str) -> float:
    return next((each["seconds"] for each in told["causes"] if each["cause"] == name), 0.0)


async def for_slots(**changed: Any) -> Explanation:
    """Two run from 0 to 2 s, and the third comes at 0.5 s."""
    async with Planted(limits={"max_slots": 2, **changed}).running() as server:
        others = [server.ask(0.0, 10, 200) for _ in range(2)]
        told = await server.ask(0.5, 10, 5)
        await asyncio.gather(*others)
        return told


def test_slots() -> None:
    told = live(for_slots)
    assert first(told) == ("slots", pytest.approx(1.5, abs=NEAR))
    assert told["settings"] == [{"option": "--max-batch-size", "value": "3"}]
    assert of(live(partial(for_slots, max_slots=3)), "slots") == 0.0


async def for_memory(num_blocks: int = 40, **limits: Any) -> Explanation:
    """One has 22 of 40 blocks and more up to 2 s; those that come at 0.2 and 0.5 s need 19 each."""
    facts = replace(FACTS, num_blocks=num_blocks)
    async with Planted(facts, limits).running() as server:
        others = [server.ask(0.0, 320, 200), server.ask(0.2, 300, 50)]
        told = await server.ask(0.5, 300, 5)
        await asyncio.gather(*others)
        return told


def test_memory() -> None:
    told = live(for_memory)
    assert first(told) == ("memory", pytest.approx(1.5, abs=NEAR))
    [change] = told["settings"]
    assert (change["option"], change["of"]) == ("--kv-memory", "tokens")
    assert "with 1 request before it and 1 that ran; `--kv-memory` for " in told["explanation"]
    enough = int(change["value"]) // FACTS.block_size
    assert of(live(partial(for_memory, num_blocks=enough)), "memory") == 0.0
    told = live(partial(for_memory, max_batch_total_tokens=40 * 16, memory_tokens=4096))
    assert [(each["option"], each["value"]) for each in told["settings"]] == [
        ("--max-batch-total-tokens", change["value"])]


async def for_a_step(most: int = 64) -> Explanation:
    """Two prompts of 640 tokens share steps of 64 tokens and 0.1 s from 0 to 2 s, and the third comes at 0.5 s."""
    fleet = TimedFleet(lambda plan: 0.1)
    async with Planted(limits={"max_batch_prefill_tokens": most, "min_step_tokens": most, "max_slots": 8},
                       fleets=[fleet]).running() as server:
        others = [server.ask(0.0, 640, 2) for _ in range(2)]
        told = await server.ask(0.5, 20, 2)
        await asyncio.gather(*others)
        return told


def test_the_budget_of_a_step() -> None:
    told = live(for_a_step)
    assert first(told) == ("budget", pytest.approx(1.5, abs=0.15))
    [change] = told["settings"]
    assert change["option"] == "--max-batch-prefill-tokens"
    assert of(live(partial(for_a_step, most=int(change["value"]))), "budget") == 0.0


async def for_an_adapter(folder: Path, room: int = 1, is_used: bool = False) -> Explanation:
    """Its load takes 1.5 s; or there is room for one adapter, and another one is used up to 2 s."""
    sources = [AdapterSource(name, folder / name, name) for name in ("one", "two")]
    for source in sources:
        (folder / source.name).mkdir(exist_ok=True)
        (folder / source.name / CONFIG).write_text('{"peft_type": "LORA"}')
    registry = Registry(sources, max_bytes=room << 20, read=lambda place, most: AdapterFiles(place.name, 1 << 18))
    fleet = TimedFleet()
    fleet.load_seconds = 0.0 if is_used else 1.5
    facts = replace(FACTS, takes_adapters=True)
    async with Planted(facts, fleets=[fleet], adapters=registry).running() as server:
        others = [server.ask(0.0, 10, 200, adapter="one")] if is_used else []
        told = await server.ask(0.5, 10, 5, adapter="two")
        await asyncio.gather(*others)
        return told


def test_an_adapter_that_is_loaded(tmp_path: Path) -> None:
    told = live(partial(for_an_adapter, tmp_path))
    assert first(told) == ("adapter", pytest.approx(1.5, abs=NEAR))
    assert told["settings"] == []


def test_the_room_of_adapters(tmp_path: Path) -> None:
    told = live(partial(for_an_adapter, tmp_path, is_used=True))
    assert first(told) == ("adapter", pytest.approx(1.5, abs=2 * NEAR))
    assert told["settings"] == [{"option": "--max-adapter-memory", "value": "2MiB"}]
    assert of(live(partial(for_an_adapter, tmp_path, room=2, is_used=True)), "adapter") < NEAR


def test_a_prefix_that_another_one_computes() -> None:
    """Of 1000 tokens 192 are computed when the same prompt comes at 0.3 s. From then on half of each step is left to
    it, and the others take 25 steps of 0.1 s."""
    async def plant() -> Explanation:
        limits = {"max_batch_prefill_tokens": 64, "min_step_tokens": 64, "max_slots": 8}
        async with Planted(limits=limits, fleets=[TimedFleet(lambda plan: 0.1)]).running() as server:
            other = server.ask(0.0, 1000, 2, first=1)
            told = await server.ask(0.3, 1000, 2, first=1)
            await other
            return told

    told = live(plant)
    assert first(told) == ("prefix", pytest.approx(2.5, abs=0.15))


def test_a_preemption() -> None:
    """Two grow until the 20 blocks are full, at 0.97 s. Then the younger waits until the older has its 200 tokens."""
    async def plant() -> Explanation:
        async with Planted(replace(FACTS, num_blocks=20)).running() as server:
            other = server.ask(0.0, 64, 200)
            told = await server.ask(0.0, 64, 130)
            await other
            return told

    told = live(plant)
    assert of(told, "preempted") == pytest.approx(1.03, abs=0.1)
    assert of(told, "writing") == pytest.approx(1.3, abs=0.1)
    assert 0 < of(told, "replay") < NEAR
    assert "since others needed its memory" in told["explanation"]


async def lost(server: Planted, fleet: TimedFleet, after: float, away: float) -> None:
    await asyncio.sleep(after)
    fleet.may_open.clear()
    fleet.failure = FleetError("planted")
    await asyncio.sleep(away)
    fleet.may_open.set()


def test_a_group_that_was_lost() -> None:
    async def plant() -> Explanation:
        async with Planted().running() as server:
            losing = asyncio.create_task(lost(server, server.fleet, 0.2, 3.0))
            told = await server.ask(0.0, 64, 60)
            await losing
            return told

    told = live(plant)
    assert first(told) == ("replayed", pytest.approx(3.0, abs=2 * NEAR))
    assert of(told, "writing") == pytest.approx(0.59, abs=NEAR)


def test_a_move_to_another_group() -> None:
    """Its group is lost at 0.2 s, and the other's only slot is taken up to 2 s."""
    async def plant() -> Explanation:
        fleets = [TimedFleet(), TimedFleet()]
        async with Planted(limits={"max_slots": 1}, fleets=fleets).running() as server:
            other = server.ask(0.0, 10, 200)
            asked = server.ask(0.01, 30, 50)
            await asyncio.sleep(0.1)
            running = [each.engine for each in server.groups.members if each.engine.num_requests]
            assert len(running) == 2
            losing = [asyncio.create_task(lost(server, fleet, 0.1, 30.0))
                      for fleet in fleets if any(row.num_inputs == 30 for plan in fleet.plans for row in plan.rows)]
            told = await asked
            await other
            assert len(losing) == 1
            losing[0].cancel()
            return told

    told = live(plant)
    assert first(told) == ("moved", pytest.approx(1.8, abs=2 * NEAR))


def test_a_group_that_is_away() -> None:
    """It is away from 0 s to 2.5 s, and the request comes at 0.5 s."""
    async def plant() -> Explanation:
        async with Planted().running() as server:
            server.fleet.may_open.clear()
            server.fleet.is_lost.set()
            told = server.ask(0.5, 10, 1)
            await asyncio.sleep(2.5)
            server.fleet.may_open.set()
            return await told

    assert first(live(plant)) == ("group", pytest.approx(2.0, abs=NEAR))


def test_a_grammar() -> None:
    class Grammars:
        async def compile(self, spec: Any) -> Any:
            await asyncio.sleep(2.0)

    async def plant() -> Explanation:
        async with Planted(grammars=Grammars()).running() as server:
            return await server.ask(0.0, 10, 20, grammar={"type": "regex", "value": "a+"})

    assert first(live(plant)) == ("grammar", pytest.approx(2.0, abs=0.001))


def test_the_load_of_a_model() -> None:
    async def load() -> None:
        with waiting("load"):
            await asyncio.sleep(4.0)

    async def plant() -> Explanation:
        async with Planted().running() as server:
            return await server.ask(0.0, 10, 20, before=load())

    told = live(plant)
    assert first(told) == ("load", pytest.approx(4.0, abs=0.001))
    assert "waited 4.00 s for its model to be loaded" in told["explanation"]


def test_a_long_prompt() -> None:
    """2000 tokens in 8 steps of 0.25 s each."""
    async def plant() -> Explanation:
        async with Planted(fleets=[TimedFleet(lambda plan: plan.num_tokens / 1000)]).running() as server:
            return await server.ask(0.0, 2000, 10)

    told = live(plant)
    assert first(told) == ("prompt", pytest.approx(2.0, abs=0.001))
    assert told["reasons"][0] == (
        "Computed its prompt for 2.00 s: 2,000 tokens at 1,000 a second, none was cached.")
    assert told["first_token_at"] == pytest.approx(2.0, abs=NEAR)


def test_a_prompt_that_is_cached_no_more() -> None:
    """It came once before, and again behind one that needed all blocks."""
    async def plant(is_kept: bool) -> Explanation:
        fleet = TimedFleet(lambda plan: plan.num_tokens / 1000)
        async with Planted(replace(FACTS, num_blocks=64), fleets=[fleet]).running() as server:
            await server.ask(0.0, 800, 1, first=1)
            if not is_kept:
                await server.ask(0.0, 1020, 1, first=4000)
            return await server.ask(0.0, 801, 10, first=1)

    missed, kept = live(partial(plant, False)), live(partial(plant, True))
    assert first(missed) == ("prompt", pytest.approx(0.8, abs=NEAR))
    assert "none was cached" in missed["reasons"][0]
    assert of(kept, "prompt") < 0.1


def test_many_who_write_beside() -> None:
    """Steps of 0.05 s, each with a row of 20 others."""
    async def plant() -> Explanation:
        fleet = TimedFleet(lambda plan: 0.05)
        async with Planted(fleets=[fleet]).running() as server:
            others = [server.ask(0.0, 10, 200) for _ in range(20)]
            told = await server.ask(0.5, 10, 41)
            for other in others:
                other.cancel()
            await asyncio.wait(others)
            return told

    told = live(plant)
    assert first(told) == ("writing", pytest.approx(2.0, abs=0.001))
    assert told["reasons"][0] == "Wrote 41 tokens in 2.00 s, 20 a second beside 20 others."


def test_prompts_of_others() -> None:
    """It writes from 0 s on; from 0.1 s on 1000 tokens of a prompt are computed in steps of 1 ms a token."""
    async def plant() -> Explanation:
        fleet = TimedFleet(lambda plan: plan.num_tokens / 1000)
        async with Planted(fleets=[fleet]).running() as server:
            other = server.ask(0.1, 1000, 1)
            told = await server.ask(0.0, 10, 200)
            await other
            return told

    told = live(plant)
    assert first(told) == ("others_prompts", pytest.approx(1.0, abs=NEAR))
    assert of(told, "writing") == pytest.approx(0.2, abs=NEAR)


def test_a_kept_answer() -> None:
    async def plant() -> Explanation:
        async with Planted(keeps_answers=True).running() as server:
            await server.ask(0.0, 10, 100, first=1)
            await asyncio.sleep(1.0)
            return await server.ask(0.0, 10, 100, first=1)

    told = live(plant)
    assert told["total_seconds"] < STEP
    assert "kept" in [each["cause"] for each in told["causes"]] or told["causes"] == []


def test_a_shared_computation() -> None:
    """The answer is computed from 0 to 2 s, and the same request comes at 0.5 s."""
    async def plant() -> Explanation:
        async with Planted(keeps_answers=True).running() as server:
            other = server.ask(0.0, 10, 200, first=1)
            told = await server.ask(0.5, 10, 200, first=1)
            await other
            return told

    told = live(plant)
    assert first(told) == ("shared", pytest.approx(1.5, abs=NEAR))


def test_a_slow_client() -> None:
    """It takes 20 tokens, which were written within 0.2 s, one each 0.1 s."""
    async def plant() -> Explanation:
        async with Planted().running() as server:
            return await server.ask(0.0, 10, 20, pause=0.1)

    told = live(plant)
    assert first(told) == ("sending", pytest.approx(1.8, abs=NEAR))


def test_the_background() -> None:
    """All slots are taken up to 2 s, so that a line of a batch waits."""
    async def plant() -> Explanation:
        async with Planted(limits={"max_slots": 2}).running() as server:
            others = [server.ask(0.0, 10, 200) for _ in range(3)]
            told = await server.ask(0.5, 10, 5, is_background=True)
            await asyncio.gather(*others)
            return told

    told = live(plant)
    assert first(told)[0] == "others"


def test_each_wait_has_a_sentence() -> None:
    waits = dict.fromkeys([*WaitReason, *Return], 1.0)
    story = Story("", None, None, 0.0, "", None, 200, None, "", {}, 0.0, 0.0, 99.0, 0.0, usage=Usage(waits=waits))
    assert waits.keys() <= {cause.name for cause in causes_of(story)}


def test_times_add_up() -> None:
    """The phases are all of the time, and the causes of each phase no more than it."""
    told = live(for_memory)
    assert sum(phase["seconds"] for phase in told["timeline"]) == pytest.approx(told["total_seconds"], abs=1e-5)
    for phase in told["timeline"]:
        assert sum(phase["causes"].values()) <= phase["seconds"] + 1e-5


