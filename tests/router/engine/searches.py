"""Beam searches that tests submit to an engine, and the answers that follow from their prompts alone."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.contract.sampling import Sampling
from penstock.router.engine.any_engine import AnyEngine
from penstock.router.engine.beams import Beams, CarriedBeams
from penstock.router.engine.engine import Engine
from penstock.router.engine.request import Request
from penstock.router.engine.stream import Stream
from penstock.router.engine.text_path import TextPath
from penstock.router.engine.transfer import Transfer
from penstock.router.scheduling.beam_search import BeamSettings
from penstock.router.scheduling.finish_reason import FinishReason
from tests.adapter_inputs import adapter_input
from tests.eventually import until
from tests.router.scheduling.beam_simulation import SimulatedSearch
from tests.router.scheduling.shard_mirror import PARITIES, chain_of
from tests.router.scheduling.simulated_client import Client
from tests.router.scheduling.small_schedulers import make_sequence
from tests.scripted_engine import AGES, TOKENIZER, ListGrammar, collect

Answer = tuple[tuple[int, ...], float, FinishReason]


def request(number: int, num_beams: int = 4, max_new_tokens: int = 24, **more: object) -> Request:
    prompt = tuple(100 + 37 * number + index for index in range(20 + 3 * number))
    beams = BeamSettings(num_beams, num_beams, (0.0, 1.0, 2.0)[number % 3], (False, True, "never")[number % 3])
    return replace(Request(prompt, Sampling(), max_new_tokens, beams=beams), **more)  # type: ignore[arg-type]


def by_grammar(asked: Request) -> Request:
    """The request with a grammar, in whose answers even and odd tokens take turns."""
    begin = len(asked.input_ids)
    return replace(asked, grammar=ListGrammar(*(
        PARITIES[position % 2] for position in range(begin, begin + asked.max_new_tokens))))


REQUESTS = [request(number, 2 + number % 4) for number in range(6)]
GRAMMATICAL = [*map(by_grammar, REQUESTS[:3])]


def expected(asked: Request) -> list[Answer]:
    """The answers of a search that nothing disturbs."""
    assert asked.beams is not None
    number = asked.adapter.number if asked.adapter else 0
    sequence = make_sequence(0, max_new=asked.max_new_tokens, tokens=asked.input_ids)
    sequence.has_grammar = asked.grammar is not None
    client = Client(sequence, list(asked.input_ids), chain_of(number, list(asked.input_ids)), 0, adapter_input(number))
    return [(each.token_ids, each.score, each.finish_reason)
            for each in SimulatedSearch(asked.beams, client).undisturbed()]


def ask(engine: AnyEngine | Engine, asked: Request, start_text: type[TextPath] = TextPath) -> list[Stream]:
    """Submits a search; returns the streams of its answers."""
    assert asked.beams is not None
    streams = [Stream(asked, start_text(TOKENIZER, asked)) for _ in range(asked.beams.num_answers)]
    streams[0].siblings = streams[1:]
    if isinstance(engine, Engine):
        engine.take(Transfer(streams[0], (), age=next(AGES)))
    else:
        engine.submit(streams[0])
    return streams


async def answers(streams: Sequence[Stream]) -> list[Answer]:
    found: list[Answer] = []
    for events in await asyncio.gather(*map(collect, streams)):
        ending = events[-1].ending
        assert ending is not None
        assert ending.score is not None
        found.append((tuple(event.token.id for event in events), ending.score, ending.finish_reason))
    return found


def look_at_moves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each search that begins in an engine adds how many tokens its beams have there."""
    lengths: list[int] = []

    def look(self: Beams, age: int, carried: CarriedBeams | None) -> None:
        lengths.append(carried.search.length if carried else 0)
        begin(self, age, carried)

    begin = Beams.begin
    monkeypatch.setattr(Beams, "begin", look)
    return lengths


async def check_idle(engine: Engine) -> None:
    await until(lambda: not engine._in_flight)
    scheduler = engine._scheduler
    assert (scheduler.memory.num_held, scheduler.num_running, scheduler.num_waiting, len(engine._requests)) == (0,) * 4
