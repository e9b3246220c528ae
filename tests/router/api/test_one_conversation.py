"""One conversation through three APIs: the model gets the same prompts, and finds most of each in the cache."""

from dataclasses import replace

import pytest

from penstock.bench.programs.scripted_model import by_last
from penstock.bench.turns.agent import APIS, TEMPLATE, make_agent
from penstock.router.chat.template import ChatTemplate
from tests.fakes import FACTS, LIMITS, SpeakingFleet
from tests.router.api.chat_templates import HERMES
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


THINKS = HERMES.replace(
    "{{ m.content }}",
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
CHAT = {
    "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}],
    "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Räd it"},
        {"role": "assistant", "reasoning_content": "Both at once.", "content": "I look.", "tool_calls": [
            {"id": f"call_{n}", "type": "function", "function": {"name": "look", "arguments": f'{{"n": {n}}}'}}
            for n in (1, 2)]},
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "call_2", "content": "Error: none"},
        {"role": "system", "content": "Be briefer."}, {"role": "user", "content": "And?"}]}
RESPONSE = {
    "instructions": "Be brief.",
    "tools": [{"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA}],
    "input": [
        {"role": "user", "content": "Räd it"},
        {"type": "reasoning", "id": "rs_1", "summary": [],
         "content": [{"type": "reasoning_text", "text": "Both at once."}]},
        {"role": "assistant", "content": "I look."},
        *({"type": "function_call", "call_id": f"call_{n}", "name": "look", "arguments": f'{{"n": {n}}}'}
          for n in (1, 2)),
        {"type": "function_call_output", "call_id": "call_1", "output": "one"},
        {"type": "function_call_output", "call_id": "call_2", "output": "Error: none"},
        {"role": "system", "content": "Be briefer."}, {"role": "user", "content": "And?"}]}
MESSAGE = {
    "model": "tgi", "max_tokens": 50, "system": [{"type": "text", "text": "Be brief."}],
    "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}],
    "messages": [
        {"role": "user", "content": "Räd it"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Both at once.", "signature": "a"}, {"type": "text", "text": "I look."},
            *({"type": "tool_use", "id": f"call_{n}", "name": "look", "input": {"n": n}} for n in (1, 2))]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "one"}]},
            {"type": "tool_result", "tool_use_id": "call_2", "content": "none", "is_error": True}]},
        {"role": "system", "content": "Be briefer."}, {"role": "user", "content": "And?"}]}


async def test_thoughts_calls_and_failures_are_the_same(start: Start) -> None:
    """Also several calls in a turn, the result of one that failed, and a message of the system amid."""
    server = await start(reply=lambda prompt: "Yes.", template=ChatTemplate({"default": THINKS}, {}))
    bodies = {"/v1/chat/completions": CHAT, "/v1/responses": {"model": "tgi", **RESPONSE}, "/v1/messages": MESSAGE}
    for path, body in bodies.items():
        response = await server.post(path, body)
        assert response.status == 200, await response.text()
    assert isinstance(server.fleet, SpeakingFleet)
    of_chat, *others = server.fleet.model.prompts
    assert others == [of_chat, of_chat]
    assert all(text in of_chat for text in ("Both at once.", '{"n": 2}', "Error: none", "Be briefer."))
