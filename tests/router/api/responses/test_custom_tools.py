"""Tools that take a text, which a grammar may bind."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from tests.router.api.conftest import Server, Start
from tests.router.api.responses.asking import URL, ask, order, stream
from tests.router.api.responses.test_output_items import CUSTOM

PATCH = """\
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

%import common.LF
"""
TEXT = "*** Begin Patch\n*** Delete File: a.py\n*** End Patch"
TOOL: dict[str, Any] = {"type": "custom", "name": "apply_patch", "description": "Changes files."}
LARK = {**TOOL, "format": {"type": "grammar", "syntax": "lark", "definition": PATCH}}
REGEX = {**TOOL, "format": {"type": "grammar", "syntax": "regex", "definition": r"[*a-zA-Z.: \n]+"}}


def called(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "apply_patch", "arguments": {arguments}}}\n</tool_call><|im_end|>'


RAW, ARGUMENTS = called(TEXT), called(json.dumps({"input": TEXT}))
"""A call as a model makes it by a grammar, and as one of a function."""
StartPatcher = Callable[..., Awaitable[Server]]


@pytest.fixture
def start_patcher(start: Start, hermes: ChatTemplate, grammars: GrammarCompiler) -> StartPatcher:
    return partial(start, template=hermes, grammars=grammars)


@pytest.mark.parametrize(("tool", "answer"), [
    (TOOL, ARGUMENTS), (LARK, RAW), (REGEX, RAW), ({**TOOL, "format": {"type": "text"}}, ARGUMENTS)])
async def test_a_call_has_a_text(start_patcher: StartPatcher, tool: dict[str, Any], answer: str) -> None:
    patcher = await start_patcher(answer=answer)
    whole = await ask(patcher, tools=[tool])
    [call] = whole["output"]
    assert (call["type"], call["name"], call["input"], call["status"]) == (
        "custom_tool_call", "apply_patch", TEXT, "completed")
    assert whole["tools"] == [tool]
    events = await stream(patcher, tools=[tool])
    assert order(events) == ["created", "in_progress", *CUSTOM, "completed"]
    assert "".join(event["delta"] for event in events if event["type"].endswith("input.delta")) == TEXT
    again = await ask(patcher, tools=[tool], input=[
        {"role": "user", "content": "Hello"}, call,
        {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "Done"}])
    assert again["status"] == "completed"


async def test_a_call_that_must_follow_the_grammar(start_patcher: StartPatcher) -> None:
    patcher = await start_patcher(answer=RAW)
    for tool in (REGEX, LARK):
        whole = await ask(patcher, tools=[tool], tool_choice={"type": "custom", "name": "apply_patch"})
        assert whole["output"][0]["input"] == TEXT
    assert patcher.fleet.masks


async def test_calls_that_have_no_room_for_a_grammar(
    start: Start, demo: ChatTemplate, grammars: GrammarCompiler
) -> None:
    """It binds nothing then, but for a call that is forced, which is refused."""
    call = json.dumps({"name": "apply_patch", "parameters": {"input": TEXT}})
    server = await start(template=demo, grammars=grammars, answer=f"{call}<|im_end|>")
    assert (await ask(server, tools=[LARK]))["output"][0]["input"] == TEXT
    choice = {"type": "custom", "name": "apply_patch"}
    refused = await server.post(URL, {"input": "Hello", "tools": [LARK], "tool_choice": choice})
    assert refused.status == 400
    assert "can't hold a text by a grammar" in (await refused.json())["error"]["message"]


@pytest.mark.parametrize(("form", "param"), [
    ({"type": "grammar"}, "tools[0].format"), ({"type": "x"}, "tools[0].format.type"),
    ({"type": "grammar", "syntax": "lark", "definition": "start: %json {}"}, "tools[0].format"),
    ({"type": "grammar", "syntax": "regex", "definition": "("}, "tools"),
    ({"type": "grammar", "syntax": "lark", "definition": "nonsense"}, "tools"),
])
async def test_what_is_no_grammar(start_patcher: StartPatcher, form: dict[str, Any], param: str) -> None:
    patcher = await start_patcher()
    tool = {**TOOL, "format": form}
    refused = await patcher.post(
        URL, {"input": "Hello", "tools": [tool], "tool_choice": {"type": "custom", "name": "apply_patch"}})
    assert refused.status == 400
    assert (await refused.json())["error"]["param"] == param


async def test_the_model_is_told_of_the_grammar(start_patcher: StartPatcher) -> None:
    patcher = await start_patcher(answer=RAW)
    numbers = [(await ask(patcher, tools=[tool]))["usage"]["input_tokens"] for tool in (REGEX, LARK)]
    assert numbers[1] > numbers[0] + 80
