"""Thinking blocks: shown or carried, bounded, and handed back to the model."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.contract.row import Row
from penstock.router.api.anthropic.signatures import carried
from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import LIMITS, ScriptedFleet, SpeakingFleet
from tests.router.api.anthropic.talks import HELLO, answer, anthropic_client, outline, stream
from tests.router.api.conftest import Script, Start

THOUGHTS = "Well, 1 < 2.\nSo"
ANSWER = f"<think>\n{THOUGHTS}\n</think>\n\nYes."
SOURCE = """\
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"""


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    """A template with a switch, which writes the thoughts of earlier answers."""
    return ChatTemplate({"default": SOURCE}, {})


async def test_thoughts_are_blocks(start: Start, template: ChatTemplate) -> None:
    server = await start(answer=f"{ANSWER}<|im_end|>", template=template)
    message = await answer(server)
    thinking, text = message["content"]
    assert (thinking["type"], thinking["thinking"], text) == ("thinking", THOUGHTS, {"type": "text", "text": "Yes."})
    number = len(await server.tokenizer.encode(f"\n{THOUGHTS}\n"))
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": number}
    assert outline(await stream(server)) == [
        "message_start", "content_block_start thinking", "content_block_delta thinking_delta",
        "content_block_delta signature_delta", "content_block_stop", "content_block_start text",
        "content_block_delta text_delta", "content_block_stop", "message_delta", "message_stop"]
    async with anthropic_client(server) as client:
        asked: Any = {"model": "tgi", "max_tokens": 100, "messages": HELLO}
        async with client.messages.stream(**asked) as events:
            streamed = await events.get_final_message()
    assert [block.model_dump(exclude_none=True) for block in streamed.content] == message["content"]
    assert streamed.usage.output_tokens_details is not None
    assert streamed.usage.output_tokens_details.thinking_tokens == number


async def test_thoughts_are_handed_back(start: Start, template: ChatTemplate, grammars: GrammarCompiler) -> None:
    """The prompt of the next turn begins with all that the model has read and written, whether its thoughts were shown
    or not."""
    server = await start(reply=lambda prompt: ANSWER, template=template, grammars=grammars)
    assert isinstance(server.fleet, SpeakingFleet)
    for display in ("summarized", "omitted"):
        thinking = {"type": "enabled", "budget_tokens": 5000, "display": display}
        content = (await answer(server, thinking=thinking))["content"]
        assert content[0]["thinking"] == (THOUGHTS if display == "summarized" else "")
        assert carried(content[0]["signature"]) == ("" if display == "summarized" else THOUGHTS)
        await answer(server, messages=[*HELLO, {"role": "assistant", "content": content}, *HELLO], thinking=thinking)
        first, second = server.fleet.model.prompts[-2:]
        assert second.startswith(f"{first}{ANSWER}<|im_end|>\n")


@pytest.mark.parametrize(("thinking", "is_closed"), [
    ({"type": "disabled"}, True), ({"type": "enabled", "budget_tokens": 99}, False), ({"type": "adaptive"}, False),
    (None, False)])
async def test_the_switch(
    start: Start, template: ChatTemplate, grammars: GrammarCompiler, thinking: object, is_closed: bool
) -> None:
    server = await start(reply=lambda prompt: "Yes.", template=template, grammars=grammars)
    message = await answer(server, thinking=thinking)
    assert message["content"] == [{"type": "text", "text": "Yes."}]
    assert isinstance(server.fleet, SpeakingFleet)
    assert server.fleet.model.prompts[-1].endswith("</think>\n\n") == is_closed


async def test_a_budget(start: Start, template: ChatTemplate, grammars: GrammarCompiler) -> None:
    """Holds to the token, and does not end the answer."""
    def obedient(script: Script) -> ScriptedFleet:
        def allowed(row: Row, mask: bytes) -> int:
            liked, allowed = script(row), int.from_bytes(mask, "little")
            return liked if allowed >> liked & 1 else (allowed & -allowed).bit_length() - 1

        return ScriptedFleet(script, allowed)

    server = await start(answer="<think>\n" + "and so on " * 50, template=template, grammars=grammars,
                         make_fleet=obedient)
    message = await answer(server, thinking={"type": "enabled", "budget_tokens": 9}, max_tokens=40)
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 9}
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert message["stop_reason"] == "max_tokens"


async def test_a_budget_is_a_wish_where_it_can_not_be_held(start: Start, template: ChatTemplate) -> None:
    """Agents send one to every server, also to those without grammars, where chats are refused."""
    server = await start(answer=f"{ANSWER}<|im_end|>", template=template)
    message = await answer(server, thinking={"type": "enabled", "budget_tokens": 1})
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert message["content"][0]["thinking"] == THOUGHTS
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "thinking_token_budget": 1})
    assert (response.status, "no grammars" in await response.text()) == (400, True)


async def test_the_manner_of_openais_routes_changes_nothing(start: Start, template: ChatTemplate) -> None:
    server = await start(replace(LIMITS, tgi_openai_routes=True), answer=f"{ANSWER}<|im_end|>", template=template)
    assert [block["type"] for block in (await answer(server))["content"]] == ["thinking", "text"]
    response = await server.post("/v1/responses", {"model": "tgi", "input": "Hello"})
    assert [item["type"] for item in (await response.json())["output"]] == ["reasoning", "message"]
    response = await server.post("/v1/chat/completions", {"messages": HELLO})
    assert (await response.json())["choices"][0]["message"]["content"] == ANSWER
