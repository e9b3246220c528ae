import json
import re

import pytest

from penstock.router.errors import ValidationError
from penstock.router.grammar.forms import (
    JSON_OBJECT,
    check_grammar,
    check_response_format,
    parse_grammar,
    parse_guided,
    parse_response_format,
)
from penstock.router.grammar.spec import GrammarSpec
from tests.router.grammar.grammar_driver import accepts_of

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
AS_JSON = GrammarSpec("json", '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}')


@pytest.mark.parametrize(("value", "spec"), [
    ({"type": "json", "value": SCHEMA}, AS_JSON),
    ({"type": "json_object", "value": SCHEMA}, AS_JSON),
    ({"type": "json", "value": AS_JSON.source}, AS_JSON),
    ({"type": "json_schema", "value": {"name": "a", "schema": SCHEMA}}, AS_JSON),
    ({"type": "json_schema", "value": {"schema": SCHEMA}}, AS_JSON),
    ({"type": "regex", "value": "a+"}, GrammarSpec("regex", "a+")),
    ({"type": "lark", "value": 'start: "a"'}, GrammarSpec("lark", 'start: "a"')),
    ({"type": "ebnf", "value": 'root ::= "a"'}, GrammarSpec("gbnf", 'root ::= "a"')),
    ({"type": "ebnf", "value": 'start: "::="'}, GrammarSpec("lark", 'start: "::="')),
    ({"type": "choice", "value": ["yes", "no?", "yes"]}, GrammarSpec("regex", r"yes|no\?")),
    ({"type": "type", "value": "boolean"}, GrammarSpec("json", '{"type":"boolean"}')),
    ({"type": "length", "value": {"unit": "characters", "max": 3}}, GrammarSpec("regex", "(?s:.){0,3}")),
])
def test_grammar(value, spec):
    assert parse_grammar(check_grammar(value)) == spec


@pytest.mark.parametrize(("value", "spec"), [
    ({"type": "text"}, None),
    ({"type": "json_object"}, JSON_OBJECT),
    ({"type": "json_object", "value": SCHEMA}, AS_JSON),
    ({"type": "json_object", "schema": SCHEMA}, AS_JSON),
    ({"type": "json_object", "schema": None}, JSON_OBJECT),
    ({"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}, AS_JSON),
    ({"type": "json", "value": SCHEMA}, AS_JSON),
    ({"type": "regex", "value": "a"}, GrammarSpec("regex", "a")),
    ({"type": "grammar", "grammar": 'root ::= "a"'}, GrammarSpec("gbnf", 'root ::= "a"')),
])
def test_response_format(value, spec):
    assert parse_response_format(check_response_format(value)) == spec


@pytest.mark.parametrize(("fields", "spec"), [
    ({}, None),
    ({"guided_json": None, "structured_outputs": None, "temperature": 3}, None),
    ({"guided_json": SCHEMA}, AS_JSON),
    ({"guided_json": AS_JSON.source}, AS_JSON),
    ({"guided_regex": "a"}, GrammarSpec("regex", "a")),
    ({"guided_choice": ["a", "b"]}, GrammarSpec("regex", "a|b")),
    ({"guided_grammar": 'start: "a"'}, GrammarSpec("lark", 'start: "a"')),
    ({"guided_grammar": 'root ::= "a"'}, GrammarSpec("gbnf", 'root ::= "a"')),
    ({"structured_outputs": {"grammar": 'root ::= "a"'}}, GrammarSpec("gbnf", 'root ::= "a"')),
    ({"ebnf": 'root ::= "a"'}, GrammarSpec("gbnf", 'root ::= "a"')),
    ({"structured_outputs": {"json": SCHEMA}}, AS_JSON),
    ({"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": False, "json_object": None}}, AS_JSON),
    ({"structured_outputs": {"json_object": True}}, JSON_OBJECT),
    ({"structured_outputs": {"disable_fallback": False}}, None),
    ({"structured_outputs": {"choice": ["a"], "regex": None}}, GrammarSpec("regex", "a")),
])
def test_guided(fields, spec):
    assert parse_guided(fields) == spec


@pytest.mark.parametrize(("parse", "value", "reason"), [
    (parse_grammar, {"type": "json", "value": 3}, "grammar is not supported"),
    (parse_grammar, {"type": "json", "value": {"a": "\ud800"}}, "the schema can't be read"),
    (parse_grammar, {"type": "regex", "value": "a\\\\\\"}, "a regex must not end within an escape"),
    (parse_grammar, {"type": "lark", "value": "start: %json {}"}, "`%json` is not supported in a grammar"),
    (parse_grammar, {"type": "lark", "value": "start: A\nA: ~" + "/a/ & " * 8 + "/a/"},
     "at most 8 of `&` and `~`. Given: 9"),
    (parse_grammar, {"type": "choice", "value": []}, "a choice must be a list of strings, none of them empty"),
    (parse_grammar, {"type": "choice", "value": ["a", ""]}, "a choice must be a list of strings, none of them empty"),
    (parse_grammar, {"type": "choice", "value": ["a"] * 1001}, "at most 1000 strings"),
    (parse_grammar, {"type": "type", "value": "colour"}, "grammar is not valid: `type` must be one of"),
    (parse_grammar, {"type": "length", "value": {}}, "grammar is not valid: `unit` must be one of"),
    (parse_guided, {"guided_regex": "a", "guided_choice": ["a"]}, "one can be asked for, not 2"),
    (parse_guided, {"structured_outputs": {"whitespace_pattern": " "}}, "not supported with `whitespace_pattern`"),
    (parse_grammar, {"type": "ebnf", "value": 'a ::= "a"\n' * 601}, "at most 600 of `::=`. Given: 601"),
    (parse_grammar, {"type": "lark", "value": 'a: "a"\n' * 601}, "at most 600 of `:`. Given: 601"),
    (parse_grammar, {"type": "ebnf", "value": 3}, "a grammar must be a string"),
    (parse_guided, {"structured_outputs": {"structural_tag": "a"}}, "not supported with `structural_tag`"),
    (parse_guided, {"structured_outputs": 3}, "`structured_outputs` must be an object"),
])
def test_refused(parse, value, reason):
    with pytest.raises(ValidationError) as refusal:
        parse(value)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(("check", "value", "reason"), [
    (check_grammar, "a+", "must be an object of `type` and `value`"),
    (check_grammar, {"value": "a"}, "missing field `type`"),
    (check_grammar, {"type": "regex"}, "missing field `value`"),
    (check_grammar, {"type": "xml", "value": ""}, "unknown `type`, expected one of `json`, `json_object`, "),
    (check_grammar, {"type": "bnf", "value": 'root ::= "a"'},
     "unknown `type`, expected one of `json`, `json_object`, `json_schema`, `regex`, `choice`, `lark`, `ebnf`, "),
    (check_grammar, {"type": ["json"], "value": ""}, "unknown `type`"),
    (check_grammar, {"type": "regex", "value": 3}, "the `value` of a regex must be a string"),
    (check_grammar, {"type": "json_schema", "value": {"name": "a"}}, "`value` must be an object with a `schema`"),
    (check_response_format, {}, "unknown `type`, expected one of `text`, `json_object`, `json_schema`, `grammar`"),
    (check_response_format, {"type": "yaml"}, "unknown `type`"),
    (check_response_format, {"type": "yaml", "value": {}}, "unknown `type`, expected one of `json`"),
    (check_response_format, {"type": "json_schema"}, "`json_schema` must be an object with a `schema`"),
    (check_response_format, {"type": "grammar"}, "`grammar` must be a string"),
])
def test_another_shape(check, value, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        check(value)


async def test_a_choice_means_what_it_says(compiler):
    choices = ["a.b", "[x]", "50% \\ {n}", "c#-~&/d", "zwei\nZeilen", "日本", "a\tb", "(^$|*+?)"]
    spec = parse_grammar({"type": "choice", "value": choices})
    assert all(await accepts_of(compiler, spec, *choices))
    assert not any(await accepts_of(compiler, spec, "axb", "x", "a", ""))


async def test_a_json_object_is_one(compiler):
    texts = ["{}", json.dumps({"a": [1, {"b": None}]}, separators=(",", ":")), "[]", "3", "", "{} "]
    assert await accepts_of(compiler, JSON_OBJECT, *texts) == [True, True, False, False, False, False]
