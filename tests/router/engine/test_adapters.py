"""Requests with adapters over a scripted fleet: loads beside the steps, refusals, losses."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.adapters.files import AdapterFiles
from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.engine.adapter_loader import MAX_LOSSES, MAX_LOSSES_BESIDE
from penstock.router.engine.engine import Engine
from penstock.router.engine.request import Request
from penstock.router.errors import AdapterNotFound, GenerationError
from penstock.router.fleet.errors import FleetError
from penstock.router.scheduling.priorities import BACKGROUND
from tests.adapter_inputs import number_in
from tests.eventually import until
from tests.fakes import ScriptedFleet
from tests.router.adapters.folders import write_adapter
from tests.scripted_engine import collect, running_engine, shifting, submit, token_ids

SIZE = 2048
"""The bytes of each adapter."""


def make_registry(folder: Path, *names: str, room: int = 10) -> Registry:
    """Adapters of these names, of which so many fit."""
    return Registry([AdapterSource(name, write_adapter(folder / name, fill=fill), name)
                     for fill, name in enumerate(names)], max_bytes=room * SIZE)


@asynccontextmanager
async def running(registry: Registry, depth: int = 2) -> AsyncIterator[tuple[Engine, ScriptedFleet]]:
    fleet = ScriptedFleet(shifting)
    async with running_engine(fleet, depth=depth, adapters=registry) as engine:
        yield engine, fleet


async def request(registry: Registry, name: str | None, max_new_tokens: int = 5) -> Request:
    return Request(input_ids=(10, 11, 12), sampling=Sampling(), max_new_tokens=max_new_tokens,
                   adapter=None if name is None else await registry.get(name))


async def rounds(number: int = 100) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def value(engine: Engine, series: str) -> float:
    lines = engine._metrics.exposition().decode().splitlines()
    return float(next(line for line in lines if line.startswith(series)).rsplit(" ", 1)[1])


@pytest.mark.parametrize("depth", [1, 2])
async def test_each_row_names_its_own_adapter(tmp_path: Path, depth: int) -> None:
    registry = make_registry(tmp_path, "a", "b")
    async with running(registry, depth) as (engine, fleet):
        requests = [await request(registry, name) for name in ("a", None, "b", "a")]
        answers = await asyncio.gather(*(collect(submit(engine, each)) for each in requests))
    assert len({tuple(token_ids(events)) for events in answers}) == 1
    numbers = [each.adapter.number if each.adapter else 0 for each in requests]
    assert sorted(number_in(state) for state in fleet.initial_states) == sorted(numbers)
    assert {number: (path, digest) for number, path, digest in fleet.loads} == {
        each.adapter.number: (str(each.adapter.path), each.adapter.digest) for each in requests if each.adapter}
    assert len(fleet.loads) == 2
    assert value(engine, "penstock_adapter_loads ") == value(engine, "penstock_adapter_load_seconds_count") == 2


async def test_running_streams_do_not_wait_for_a_load(tmp_path: Path) -> None:
    registry = make_registry(tmp_path, "a")
    async with running(registry) as (engine, fleet):
        fleet.may_load.clear()
        waiting = submit(engine, await request(registry, "a"))
        assert len(await collect(submit(engine, await request(registry, None, 50)))) == 50
        assert waiting.started_at is None
        engine._note_occupancy()
        assert value(engine, 'penstock_adapters{state="loading"}') == 1
        assert value(engine, 'penstock_adapters{state="known"}') == 1
        fleet.may_load.set()
        assert len(await collect(waiting)) == 5


async def test_adapters_that_do_not_fit_together_take_turns(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(6)]
    registry = make_registry(tmp_path, *names, room=2)
    async with running(registry) as (engine, fleet):
        streams = [submit(engine, await request(registry, name, 3)) for name in names * 3]
        answers = await asyncio.wait_for(asyncio.gather(*map(collect, streams)), 20)
        assert all(len(events) == 3 for events in answers)
        assert len(fleet.adapters) <= 2
        num_evictions = value(engine, "penstock_adapter_evictions")
        assert num_evictions == len(fleet.unloads) == len(fleet.loads) - len(fleet.adapters)


async def test_a_refused_adapter_fails_those_who_wait_for_it_alone(tmp_path: Path) -> None:
    registry = make_registry(tmp_path, "good", "bad")
    async with running(registry) as (engine, fleet):
        fleet.refused[str(tmp_path / "bad")] = "its rank is 7"
        bad = [submit(engine, await request(registry, "bad")) for _ in range(2)]
        good = submit(engine, await request(registry, "good", 30))
        for stream in bad:
            with pytest.raises(GenerationError, match="adapter `bad`: its rank is 7"):
                await collect(stream)
        assert len(await collect(good)) == 30
        assert not engine._requests
        fleet.refused.clear()
        assert len(await collect(submit(engine, await request(registry, "bad")))) == 5


async def test_a_replay_loads_its_adapter_again_and_goes_on(tmp_path: Path) -> None:
    registry = make_registry(tmp_path, "a")
    async with running(registry) as (engine, fleet):
        whole = token_ids(await collect(submit(engine, await request(registry, "a", 20))))
        stream = submit(engine, await request(registry, "a", 20))
        fleet.fail_at("next_result", 5)
        assert token_ids(await collect(stream)) == whole
        assert len(set(fleet.loads)) == 1
        assert len(fleet.loads) == 2
        assert len({number_in(state) for state in fleet.initial_states}) == 1


async def test_a_replay_is_not_answered_by_another_adapter_of_the_name(tmp_path: Path) -> None:
    """The name is given to other files while the request runs: it goes on with its own."""
    registry = make_registry(tmp_path, "a")
    async with running(registry) as (engine, fleet):
        streams = [submit(engine, await request(registry, "a", 20)) for _ in range(2)]
        await fleet.has_plan.wait()
        await registry.remove("a")
        await registry.add(AdapterSource("a", write_adapter(tmp_path / "other", fill=9), "a"))
        new = submit(engine, await request(registry, "a", 20))
        fleet.fail_at("next_result", 3)
        assert [len(await collect(stream)) for stream in (*streams, new)] == [20, 20, 20]
        assert {number_in(state) for state in fleet.initial_states} == {
            stream.request.adapter.number for stream in (*streams, new) if stream.request.adapter}


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_replay_whose_files_have_changed_fails(tmp_path: Path, is_gone: bool) -> None:
    """The shards notice that, by the digest that they are told; it is noticed here that files are gone."""
    registry = make_registry(tmp_path, "a")
    async with running(registry) as (engine, fleet):
        stream = submit(engine, await request(registry, "a", 20))
        await fleet.has_plan.wait()
        if is_gone:
            (tmp_path / "a" / "adapter_config.json").unlink()
        else:
            fleet.refused[str(tmp_path / "a")] = "the files have another digest"
        fleet.failure = FleetError("gone")
        with pytest.raises(GenerationError, match=r"adapter `a`: .*(No such file|another digest)"):
            await collect(stream)
        assert len(await collect(submit(engine, await request(registry, None)))) == 5


async def test_an_adapter_that_is_removed_is_unloaded_once_its_requests_have_ended(tmp_path: Path) -> None:
    registry = make_registry(tmp_path, "a")
    async with running(registry) as (engine, fleet):
        stream = submit(engine, await request(registry, "a", 20))
        await fleet.has_plan.wait()
        adapter = stream.request.adapter
        assert adapter is not None
        await registry.remove("a")
        await rounds(5)
        assert fleet.unloads == []
        assert len(await collect(stream)) == 20
        await until(lambda: bool(fleet.unloads))
        await rounds()
        assert fleet.unloads == [adapter.number]
        assert value(engine, 'penstock_adapters{state="known"}') == 0


async def test_one_that_kills_the_group_is_loaded_alone_and_given_up(tmp_path: Path) -> None:
    """Nothing else is in flight the last times, so no other request is blamed; all of them are answered."""
    registry = make_registry(tmp_path, "killer", "good")
    async with running(registry) as (engine, fleet):
        asked = [await request(registry, name, 200) for name in (None, "good")]
        killer = await request(registry, "killer")
        others = [submit(engine, each) for each in asked]
        await until(lambda: bool(fleet.adapters))
        load, next_result = fleet.load_adapter, fleet.next_result

        async def slow() -> StepResult:
            await asyncio.sleep(0.005)  # so that the others still run when the first load fails
            return await next_result()

        fleet.next_result = slow  # type: ignore[method-assign]
        beside: list[bool] = []

        async def dying(number: int, path: str, digest: str) -> int:
            if "killer" not in path:
                return await load(number, path, digest)
            await rounds(20)
            beside.append(bool(engine._in_flight))
            raise FleetError("dead")

        fleet.load_adapter = dying  # type: ignore[method-assign]
        stream = submit(engine, killer)
        with pytest.raises(GenerationError, match="4 times in a row while they loaded the adapter `killer`"):
            await asyncio.wait_for(collect(stream), 20)
        assert len(beside) == MAX_LOSSES
        assert any(beside[:MAX_LOSSES_BESIDE])
        assert not any(beside[MAX_LOSSES_BESIDE:])
        assert [len(await collect(other)) for other in others] == [200, 200]
        late = await request(registry, "killer")
        with pytest.raises(GenerationError):
            submit(engine, late)
        fleet.load_adapter = load  # type: ignore[method-assign]
        source = next(each for each in registry if each.name == "killer")
        await registry.remove("killer")
        await registry.add(source)
        assert len(await collect(submit(engine, late))) == 5


async def test_a_group_that_dies_while_it_loads_loads_again(tmp_path: Path) -> None:
    registry = make_registry(tmp_path, "a")
    async with running(registry) as (engine, fleet):
        fleet.may_load.clear()
        stream = submit(engine, await request(registry, "a"))
        await until(lambda: bool(fleet.loads))
        fleet.is_lost.set()
        await asyncio.sleep(0.1)
        fleet.may_load.set()
        assert len(await collect(stream)) == 5
        assert len(fleet.loads) == 2


async def test_a_request_that_leaves_before_its_adapter_is_loaded(tmp_path: Path) -> None:
    registry = make_registry(tmp_path, "a")
    async with running(registry) as (engine, fleet):
        fleet.may_load.clear()
        async with submit(engine, await request(registry, "a")):
            await until(lambda: bool(fleet.loads))
        fleet.may_load.set()
        await until(lambda: len(fleet.adapters) == 1)
        assert len(await collect(submit(engine, await request(registry, "a")))) == 5
        assert len(fleet.loads) == 1


def most_kept(*owners: object) -> int:
    """The length of the longest of what objects keep."""
    return max(len(each) for owner in owners for each in vars(owner).values() if hasattr(each, "__len__"))


@pytest.mark.parametrize(("num_names", "kept", "used_every"), [
    (200, 20, 4), pytest.param(20_000, 2_000, 40, marks=pytest.mark.slow),
    pytest.param(100_000, 10_000, 200, marks=[pytest.mark.slow, pytest.mark.every_case])])
async def test_names_that_come_and_go_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_names: int, kept: int, used_every: int
) -> None:
    monkeypatch.setattr("penstock.router.adapters.registry.MAX_REMOVED", kept)
    monkeypatch.setattr("penstock.router.engine.adapter_loader.MOST_UNUSED", kept)
    numbers = itertools.count()

    def read(folder: Path, max_weights: int) -> AdapterFiles:
        return AdapterFiles(str(next(numbers)), 512)

    write_adapter(tmp_path)
    registry = Registry(max_bytes=10 * SIZE, read=read)
    async with running(registry) as (engine, fleet):
        engine._adapters._most_known = kept
        seen = set()
        for count in range(num_names):
            name = f"n{count}"
            await registry.add(AdapterSource(name, tmp_path, name))
            if count % used_every == 0:
                asked = await request(registry, name, 1)
                assert len(await collect(submit(engine, asked))) == 1
                assert asked.adapter is not None
                seen.add(asked.adapter.number)
            else:
                engine._adapters.use(await registry.get(name))
            await registry.remove(name)
        assert len(seen) == num_names / used_every == len(fleet.loads), "no number is another's"
        await until(lambda: not fleet.adapters)
        assert most_kept(registry, registry._numbers, engine._adapters, engine._scheduler.adapters) <= 2 * kept + 10
        assert len(registry.removed) == kept
        with pytest.raises(AdapterNotFound):
            registry.named(f"n{num_names - 1}")


async def test_a_line_gets_its_adapter_once_nobody_is_expected_back_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for one, and nothing runs any more that would let time pass."""
    monkeypatch.setattr("penstock.router.engine.engine.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("penstock.router.scheduling.residency.MOMENT_SECONDS", 0.2)
    registry = make_registry(tmp_path, "a", "b", room=1)
    async with running(registry) as (engine, fleet):
        await collect(submit(engine, await request(registry, "a")))
        line = replace(await request(registry, "b"), priority=BACKGROUND)
        assert len(await collect(submit(engine, line))) == 5
        assert len(fleet.loads) == 2
