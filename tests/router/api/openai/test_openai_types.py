"""OpenAI's types, field by field, as the installed `openai` package has them: every value is served, or changes nothing
and is ignored, or is refused by the name of its field. The last are those of a table here, and no others."""

import json
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NotRequired, Required

import pytest
from openai._types import SequenceNotStr
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from typing_extensions import is_typeddict

from penstock.router.api.openai.bodies import ChatBody, CompletionBody
from penstock.router.chat.template import ChatTemplate
from penstock.router.generation.other_fields import IGNORED, REFUSED_IN_CHATS, REFUSED_IN_COMPLETIONS
from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import ScriptedFleet
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO
from tests.scripted_engine import Dice

A = {"type": "function", "function": {"name": "a"}}
PLACES = {
    "chat": ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 2, "tools": [A]},
             chat_create_params.CompletionCreateParamsBase, ChatBody, REFUSED_IN_CHATS),
    "completions": ("/v1/completions", {"prompt": "a", "max_tokens": 2},
                    completion_create_params.CompletionCreateParamsBase, CompletionBody, REFUSED_IN_COMPLETIONS),
}
NUMBERS: dict[str, list[float]] = {
    "temperature": [0, 1, 2], "top_p": [0, 0.5, 1], "frequency_penalty": [-2, 0, 2.0], "presence_penalty": [-2, 0, 2.0],
    "seed": [-2**63, -1, 0, 2**63 - 1], "top_logprobs": [0, 1, 5]}
"""The ends of what OpenAI documents, where 1 is not enough; of `top_logprobs` those that --max-top-n-tokens allows."""
SAMPLES: dict[str, list[Any]] = {
    "arguments": ['{"a": 1}', ""], "logit_bias": [{}, {"5": -100, "6": 100}], "metadata": [{"a": "b"}],
    "schema": [{"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}],
    "parameters": [{"type": "object", "properties": {"a": {"enum": [1]}}}],
    "allowed_tools": [{"mode": mode, "tools": [A]} for mode in ("auto", "required")],
    "prompt": ["a", ["a", "b"], [1, 2], [[1, 2], [3]], None],
}
"""Values of fields whose type says less than what they mean."""
BESIDE: dict[str, dict[str, Any]] = {"top_logprobs": {"logprobs": True}, "stream_options": {"stream": True}}
REFUSED: dict[str, set[str]] = {
    "chat": {
        "audio", "moderation", "web_search_options",
        'modalities ["audio"]', 'verbosity "low"', 'verbosity "high"',
        "tools custom", "tool_choice custom", "response_format without schema", "messages audio", "messages file",
        "messages without content",
        "messages image_url", "messages input_audio", "messages custom call"},
    "completions": {"suffix", "prompt null"},
}
"""What is not served, by the field, and by the value where others are."""
OLD = ("functions", "function_call")
"""The old form of tools, which does not go with them."""


@pytest.fixture
async def server(start: Start, hermes: ChatTemplate, grammars: GrammarCompiler) -> Server:
    return await start(
        make_fleet=lambda _: ScriptedFleet(lambda row: 5, Dice()), grammars=grammars, template=hermes)


def values(kind: Any, name: str) -> Iterator[Any]:
    """The values to try of a field: one at least for each alternative of its type, and null where it is one."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if name in SAMPLES:
        yield from SAMPLES[name]
    elif origin in (Required, NotRequired):
        yield from values(inner[0], name)
    elif origin in (typing.Union, types.UnionType):
        for alternative in inner:
            yield from values(alternative, name)
    elif origin is Literal:
        yield from inner
    elif origin in (list, Iterable, Sequence, SequenceNotStr, typing.get_origin(typing.Iterable[int])):
        yield from ([value] for value in values(inner[0], name))
    elif is_typeddict(kind):
        yield from objects(kind)
    elif kind in (int, float):
        yield from NUMBERS.get(name, [1])
    else:
        yield from {str: ["a"], bool: [True, False], type(None): [None]}[kind]


def objects(kind: Any) -> Iterator[dict[str, Any]]:
    """Objects with what is required, and with one further field at a time."""
    hints = typing.get_type_hints(kind, include_extras=True)
    needed = [name for name, hint in hints.items() if typing.get_origin(hint) is Required]
    least = {name: next(values(hints[name], name)) for name in needed}
    yield least
    for name, hint in hints.items():
        yield from ({**least, name: value} for value in values(hint, name))


def label(name: str, value: Any) -> str:
    """How the table of what is refused names a value."""
    text = json.dumps(value)
    if name == "messages":
        message = value[0]
        if "custom" in str(message.get("tool_calls")):
            return "messages custom call"
        if message.get("audio"):
            return "messages audio"
        return f"messages {message['content'][0]['type']}" if message.get("content") else "messages without content"
    if name in ("tools", "tool_choice"):
        return f"{name} {(value[0] if name == 'tools' else value)['type']}"
    if name == "response_format":
        return f"{name} without schema"
    return name if name in REFUSED["chat"] | REFUSED["completions"] else f"{name} {text}"


@pytest.mark.parametrize("place", PLACES)
async def test_every_value_of_openais_types(server: Server, place: str) -> None:
    path, base, kind, _, _ = PLACES[place]
    refused, number = set(), 0
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        for value in values(hint, name):
            body = {**base, **BESIDE.get(name, {}), name: value}
            if name in OLD:
                body = {**body, "tools": None, "functions": [{"name": "a"}], name: value}
            response = await server.post(path, body)
            text, number = await response.text(), number + 1
            if response.status != 200:
                assert response.status in (400, 422), (name, value, text)
                assert name in text, (name, value, text)
                refused.add(label(name, value))
    assert refused == REFUSED[place]
    assert number > (20 if place == "completions" else 100)


@pytest.mark.parametrize("place", PLACES)
def test_every_field_of_openais_is_known(place: str) -> None:
    _, _, kind, schema, refused = PLACES[place]
    assert set(typing.get_type_hints(kind)) <= schema.model_fields.keys() | refused.keys() | IGNORED.keys()
