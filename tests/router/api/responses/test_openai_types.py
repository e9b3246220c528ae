"""OpenAI's types, field by field, as the installed `openai` package has them, as for chats."""

import json
import re
import typing
from typing import Any

import pytest
from openai.types.responses import ResponseInputItemParam, ToolParam, response_create_params
from typing_extensions import is_typeddict

from penstock.router.api.responses.bodies import ResponseBody
from penstock.router.chat.template import ChatTemplate
from penstock.router.generation.other_fields import IGNORED, REFUSED_IN_RESPONSES
from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import ScriptedFleet
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.test_openai_types import Dice, values
from tests.router.api.responses.asking import URL

KIND = response_create_params.ResponseCreateParamsBase
A = {"type": "function", "name": "a"}
BASE: dict[str, Any] = {"input": "Hello", "max_output_tokens": 2, "tools": [A]}
OBJECTS = ("input", "tools", "tool_choice")
"""The fields of many types of objects, which have tests of their own."""
SERVED_ITEMS = {"message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
                "custom_tool_call_output", "item_reference"}
LITERAL = re.compile("'([a-z0-9_]+)'")
REFUSED = {"moderation", "prompt", "conversation", "image", "context_management", "previous_response_id",
           "background true"}
"""What is not served, by the field, and by the value where others are."""


@pytest.fixture
async def server(start: Start, hermes: ChatTemplate, grammars: GrammarCompiler) -> Server:
    return await start(
        make_fleet=lambda _: ScriptedFleet(lambda row: 5, Dice()), grammars=grammars, template=hermes)


def kinds(union: Any) -> set[str]:
    """The types that objects of a union may have."""
    found: set[str] = set()
    for kind in typing.get_args(union):
        hints = typing.get_type_hints(kind, include_extras=True) if is_typeddict(kind) else {}
        found.update(LITERAL.findall(str(hints.get("type", ""))))
    return found


async def status(server: Server, **fields: Any) -> tuple[int, str]:
    response = await server.post(URL, {**BASE, **fields})
    return response.status, await response.text()


async def test_every_value_of_openais_types(server: Server) -> None:
    refused, number = set(), 0
    for name, hint in typing.get_type_hints(KIND, include_extras=True).items():
        for value in () if name in OBJECTS else values(hint, name):
            code, text = await status(server, **{name: value})
            number += 1
            if code != 200:
                assert code == 400, (name, value, text)
                refused.add(name if name in REFUSED else f"{name} {json.dumps(value)}")
    assert refused == REFUSED
    assert number > 50


async def test_every_tool_of_openais(server: Server) -> None:
    """Those that are not served are skipped beside others, and refused alone, or where they are chosen."""
    hosted = kinds(ToolParam) - {"function", "custom"}
    assert hosted >= {"web_search", "namespace", "image_generation", "code_interpreter", "mcp", "file_search"}
    for kind in hosted:
        tool = {"type": kind, "name": "x", "description": "", "tools": []}
        assert (await status(server, tools=[A, tool]))[0] == 200, kind
        assert f'Given: \\"{kind}\\"' in (await status(server, tools=[tool]))[1]
        assert f'Given: \\"{kind}\\"' in (await status(server, tool_choice={"type": kind}))[1]
    assert (await status(server, tools=[{"type": "custom", "name": "b"}]))[0] == 200


async def test_every_item_of_openais(server: Server) -> None:
    for kind in kinds(ResponseInputItemParam) - SERVED_ITEMS:
        code, text = await status(server, input=[{"type": kind, "id": "a", "role": "user"}])
        assert (code, "`input[0].type` must be one of" in text) == (400, True), kind


def test_every_field_of_openais_is_known() -> None:
    assert set(typing.get_type_hints(KIND)) <= ResponseBody.model_fields.keys() | REFUSED_IN_RESPONSES.keys() | (
        IGNORED.keys())
