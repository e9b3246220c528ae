"""The form of an answer, as TGI's routes and completions ask for it: real grammars, tokens drawn from their masks."""

import json
import random
import re
from typing import Any

import jsonschema
import orjson
import pytest

from penstock.contract.row import Row
from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import FACTS, ScriptedFleet
from tests.router.api.conftest import Script, Server, Start
from tests.router.api.openai.test_completions import chunks, complete, text_of
from tests.scripted_engine import ids_of

EOS_ID, = FACTS.eos_token_ids
SCHEMA = {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"],
    "additionalProperties": False}


class DrawingFleet(ScriptedFleet):
    """Draws a token that the mask allows; the end as soon as it is one of them."""

    def __init__(self, answer: Script) -> None:
        super().__init__(answer, self._draw)
        self._dice = random.Random(0)

    def _draw(self, row: Row, mask: bytes) -> int:
        self.answer(row)  # so that the script has its place when a row comes without a mask, for a sequence that ended
        allowed = ids_of(mask)
        return EOS_ID if EOS_ID in allowed else self._dice.choice(allowed)


@pytest.fixture
async def drawing(start: Start, grammars: GrammarCompiler) -> Server:
    return await start(grammars=grammars, make_fleet=DrawingFleet)


def is_valid(text: str) -> bool:
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


@pytest.mark.parametrize("grammar", [
    {"type": "json", "value": SCHEMA}, {"type": "json_object", "value": SCHEMA},
    {"type": "json", "value": json.dumps(SCHEMA)}, {"type": "json_schema", "value": {"name": "n", "schema": SCHEMA}}])
async def test_json_on_the_own_routes(drawing: Server, grammar: dict[str, Any]) -> None:
    answer = await drawing.generate(grammar=grammar, details=True)
    assert is_valid(answer["generated_text"])
    assert answer["details"]["finish_reason"] == "eos_token"
    response = await drawing.post("/generate_stream", {"inputs": "a", "parameters": {"grammar": grammar}})
    *_, last, _ = (await response.read()).split(b"\n\n")
    assert is_valid(orjson.loads(last.removeprefix(b"data: "))["generated_text"])


async def test_a_regex_on_the_own_routes(drawing: Server) -> None:
    grammar = {"type": "regex", "value": "[ab]{3}-[0-9]{2}"}
    assert re.fullmatch(grammar["value"], (await drawing.generate(grammar=grammar))["generated_text"])
    response = await drawing.post("/", {"inputs": "Say: ", "parameters": {
        "grammar": grammar, "best_of": 2, "do_sample": True, "details": True}})
    answer, = await response.json()
    for one in (answer, *answer["details"]["best_of_sequences"]):
        assert re.fullmatch("Say: " + grammar["value"], one["generated_text"])


@pytest.mark.parametrize("fields", [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}},
    {"response_format": {"type": "json", "value": SCHEMA}}, {"guided_json": SCHEMA},
    {"guided_json": json.dumps(SCHEMA)}, {"structured_outputs": {"json": SCHEMA, "regex": None}}])
async def test_json_in_completions(drawing: Server, fields: dict[str, Any]) -> None:
    whole = await complete(drawing, prompt=["a", "b"], n=2, **fields)
    assert all(is_valid(choice["text"]) for choice in whole["choices"])
    assert {choice["finish_reason"] for choice in whole["choices"]} == {"stop"}
    assert is_valid(text_of(await chunks(drawing, **fields)))


@pytest.mark.parametrize(("fields", "pattern"), [
    ({"guided_regex": "a{2,4}"}, "a{2,4}"), ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
    ({"guided_grammar": 'start: "x" | "y"'}, "x|y"),
    ({"response_format": {"type": "regex", "value": "[xy]z"}}, "[xy]z"),
    ({"response_format": {"type": "text"}}, "Hello.*")])
async def test_other_forms_in_completions(drawing: Server, fields: dict[str, Any], pattern: str) -> None:
    assert re.fullmatch(pattern, (await complete(drawing, **fields))["choices"][0]["text"])


@pytest.mark.parametrize(("grammar", "rule"), [
    ({"type": "json", "value": 5}, "grammar is not supported"),
    ({"type": "regex", "value": "("}, "grammar is not valid: "),
    ({"type": "json", "value": {"type": "object", "minProperties": 5, "uniqueItems": True}}, "grammar is not valid: "),
    ({"type": "json", "value": "{"}, "grammar is not valid: "),
])
async def test_what_is_no_grammar(drawing: Server, grammar: object, rule: str) -> None:
    for path in ("/generate", "/generate_stream"):
        response = await drawing.post(path, {"inputs": "a", "parameters": {"grammar": grammar}})
        assert response.status == (200 if path == "/generate_stream" else 422)
        told = orjson.loads((await response.read()).removeprefix(b"data: ").strip())
        assert told["error"].startswith(f"Input validation error: {rule}")
        assert told["error_type"] == "validation"
    response = await drawing.post("/generate", {"inputs": "a", "parameters": {"grammar": grammar, "top_k": 0}})
    assert (await response.json())["error"] == "Input validation error: `top_k` must be strictly positive"
    await drawing.until_idle()
