"""One conversation through three APIs: the model gets the same prompts, and finds most of each in the cache."""

from dataclasses import replace

import pytest

from penstock.bench.programs.scripted_model import by_last
from penstock.bench.turns.agent import APIS, TEMPLATE, make_agent
from penstock.router.chat.template import ChatTemplate
from tests.fakes import FACTS, LIMITS, SpeakingFleet
from tests.router.api.conftest import Start

NUM_TURNS = 5
AGENT = make_agent(NUM_TURNS, num_system_words=300)


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate({"default": TEMPLATE}, {})


async def test_the_prompts_are_the_same(start: Start, template: ChatTemplate) -> None:
    facts = replace(FACTS, context_length=16384, num_blocks=4096)
    limits = replace(LIMITS, max_input_tokens=16000, max_total_tokens=16384)
    prompts = {}
    for name, api in APIS.items():
        server = await start(reply=by_last(AGENT.answers), template=template, facts=facts, limits=limits)
        lengths = []
        for turn in range(NUM_TURNS):
            response = await server.post(api.path, api.body(AGENT, turn))
            answer = await response.json()
            assert response.status == 200, answer
            length, cached = api.usage(answer["usage"])
            assert turn == 0 or cached >= lengths[-1] - FACTS.block_size
            lengths.append(length)
        assert isinstance(server.fleet, SpeakingFleet)
        prompts[name] = [*zip(server.fleet.model.prompts, lengths, strict=True)]
    assert len(prompts["chat"]) == NUM_TURNS
    assert prompts["chat"] == prompts["responses"] == prompts["messages"]
