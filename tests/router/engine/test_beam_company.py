"""Beam searches through the engine with a grammar, stop strings, an adapter or a priority: the answers are those of a
search that nothing disturbs."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.router.engine.request import Request
from penstock.router.errors import GenerationError
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.scheduling.finish_reason import FinishReason
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.engine.mirror_fleet import MIRRORED, MirrorFleet
from tests.router.engine.searches import (
    GRAMMATICAL,
    REQUESTS,
    answers,
    ask,
    check_idle,
    expected,
    look_at_moves,
    request,
)
from tests.router.engine.test_adapters import make_registry
from tests.router.front.fronts import front, serving
from tests.router.scheduling.shard_mirror import EOS
from tests.scripted_engine import TOKENIZER, ListGrammar, running_engine, running_groups


def with_stops(asked: Request) -> Request:
    """With stop strings of two tokens each, which come in the longest of the answers that there are without them."""
    tokens, *_ = max(expected(asked), key=lambda answer: len(answer[0]))
    return replace(asked, stop=tuple(TOKENIZER.decode(tokens[place:place + 2]) for place in (2, 5, 8)))


STOPPING = [with_stops(request(number, 3)) for number in (0, 1, 12)]


@pytest.mark.parametrize(("depth", "max_slots"), [pytest.param(1, 128, marks=pytest.mark.slow), (2, 3)])
async def test_grammars(depth: int, max_slots: int) -> None:
    async with running_engine(MirrorFleet(), depth, facts=MIRRORED, limits=replace(LIMITS, max_slots=max_slots)) as it:
        found = await asyncio.gather(*(answers(ask(it, each)) for each in GRAMMATICAL + REQUESTS[:2]))
        await check_idle(it)
    assert found == [*map(expected, GRAMMATICAL + REQUESTS[:2])]


@pytest.mark.parametrize("at", [3, pytest.param(7, marks=pytest.mark.slow)])
async def test_after_a_loss(at: int) -> None:
    async with running_engine(fleet := MirrorFleet(), 2, facts=MIRRORED) as engine:
        undisturbed = await asyncio.gather(*(answers(ask(engine, each)) for each in STOPPING))
        fleet.fail_at("next_result", at)
        found = await asyncio.gather(*(answers(ask(engine, each)) for each in GRAMMATICAL + STOPPING))
        await check_idle(engine)
    assert found == [*map(expected, GRAMMATICAL), *undisturbed]
    for search in undisturbed:
        assert FinishReason.STOP_SEQUENCE in {reason for _, _, reason in search}


@pytest.mark.parametrize("at", [4, pytest.param(7, marks=pytest.mark.slow)])
async def test_moved_to_another_group(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a grammar and the text before a stop string begin anew behind the tokens of each beam: with the loss of the
    fourth step amid a stop string."""
    lengths, registry = look_at_moves(monkeypatch), make_registry(tmp_path, "a")
    adapter = await registry.get("a")
    others = [*GRAMMATICAL, *(replace(each, adapter=adapter) for each in REQUESTS[1:3])]
    fleets = [MirrorFleet(), MirrorFleet()]
    async with running_groups(*fleets, depth=2, facts=MIRRORED, adapters=registry) as groups:
        await until(lambda: all(each.engine.has_group for each in groups.members))
        undisturbed = await asyncio.gather(*(answers(ask(groups, each)) for each in STOPPING))
        fleets[0].fail_at("next_result", at)
        fleets[0].may_open.clear()
        streams = [ask(groups, each) for each in STOPPING + others]
        found = await asyncio.gather(*map(answers, streams))
        fleets[0].may_open.set()
        for member in groups.members:
            await check_idle(member.engine)
    assert found == [*undisturbed, *map(expected, others)]
    assert max(lengths) > 0, "nothing moved"


async def test_each_search_has_its_adapter(tmp_path: Path) -> None:
    """Of two, one of which fits at a time."""
    registry = make_registry(tmp_path, "a", "b", room=1)
    asked = [replace(each, adapter=name and await registry.get(name))
             for each, name in zip(REQUESTS[:5], ("a", "b", None, "a", "b"), strict=True)]
    fleet = MirrorFleet()
    async with running_engine(fleet, 2, facts=MIRRORED, limits=replace(LIMITS, max_slots=6), adapters=registry) as it:
        found = await asyncio.gather(*(answers(ask(it, each)) for each in asked))
        await check_idle(it)
    assert found == [*map(expected, asked)]
    assert found[0] != expected(REQUESTS[0])


class Grammars:
    """Two answers follow the only one: they have a token, and end."""

    async def compile(self, spec: GrammarSpec) -> ListGrammar:
        return ListGrammar({4, 5}, {EOS})


async def test_fewer_answers_come_where_no_more_follow_the_grammar(tmp_path: Path) -> None:
    """In the engine's process and in another one."""
    path, spec = tmp_path / "engine", GrammarSpec("regex", "4|5")
    asked = replace(request(0, num_beams=4), grammar=await Grammars().compile(spec))
    async with serving(path, MirrorFleet(), facts=MIRRORED, grammars=Grammars()) as (groups, _), front(path) as remote:
        for engine, each in (groups, asked), (remote, replace(asked, grammar=spec)):
            streams = ask(engine, each)
            found = await answers(streams[:2])
            assert sorted(tokens for tokens, _, _ in found) == [(4, EOS), (5, EOS)]
            assert [(stream.is_over, stream.ending) for stream in streams[2:]] == [(True, None)] * 2
        await check_idle(groups.members[0].engine)


async def test_a_search_fails_where_no_answer_follows_the_grammar() -> None:
    asked = replace(request(0), grammar=ListGrammar({4, 5}, ()))
    async with running_engine(MirrorFleet(), 2, facts=MIRRORED) as engine:
        other = asyncio.create_task(answers(ask(engine, REQUESTS[1])))
        with pytest.raises(GenerationError, match="no answer follows the grammar any further"):
            await answers(ask(engine, asked)[:1])
        assert await other == expected(REQUESTS[1])
        await check_idle(engine)


async def test_the_search_of_the_lowest_priority_comes_first() -> None:
    fleet = MirrorFleet()
    async with running_engine(fleet, 2, facts=MIRRORED, limits=replace(LIMITS, max_slots=2)) as engine:
        streams = [ask(engine, REQUESTS[0])]
        await fleet.has_plan.wait()
        asked = [replace(request(number, 2), priority=priority) for number, priority in ((1, 5), (2, -5), (3, 0))]
        streams += [ask(engine, each) for each in asked]
        assert await asyncio.gather(*map(answers, streams)) == [*map(expected, REQUESTS[:1] + asked)]
        await check_idle(engine)
    ranked = sorted(streams[1:], key=lambda each: each[0].started_at or 0.0)
    assert [each[0].request.priority for each in ranked] == [-5, 0, 5]
