import json

import pytest

from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.schema import prepare
from penstock.router.grammar.spec import GrammarSpec
from tests.router.grammar.grammar_driver import accepts, accepts_of


@pytest.mark.parametrize(("schema", "reason"), [
    ({"not": {"type": "string"}}, "`not` is not supported"),
    ({"properties": {"a": {"uniqueItems": True}}}, "`uniqueItems` is not supported"),
    ({"$defs": {"a": {"if": {}, "then": {}}}}, "`if` is not supported"),
    ({"anyOf": [{"dependentRequired": {}}]}, "`dependentRequired` is not supported"),
    ({"items": [{"contains": {}}]}, "`contains` is not supported"),
    ({"nullable": True}, "`nullable` is not supported"),
    ({"x-guidance": {"lenient": True}}, "`x-guidance` is not supported"),
    ({"foo": 1}, "`foo` is not supported"),
    ({"format": "color"}, '`format` "color" is not supported'),
    ({"format": ["date"]}, '`format` ["date"] is not supported'),
    ({"type": "integer", "format": "date"}, "`format` is supported for strings alone"),
    ({"type": "integer", "multipleOf": 1234567}, "`multipleOf` 1234567 is not supported"),
    ({"type": "integer", "multipleOf": 0}, "`multipleOf` 0 is not supported"),
    ({"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]}, "where schemas are combined, `multipleOf`"),
    ({"allOf": [{"pattern": f"a{number}"} for number in range(11)]}, "at most 10 of `pattern` and `format`. Given: 11"),
    ({"properties": {f"p{number}": {} for number in range(401)}}, "`properties` must have at most 400"),
    ({"enum": [[number] for number in range(1501)]}, "`enum` must have at most 1500 objects and arrays. Given: 1501"),
    ({"patternProperties": {f"^p{number}$": {} for number in range(101)}}, "at most 100 of `patternProperties`"),
    ({"$ref": "https://example.com/schema"}, "`$ref` is supported within the schema"),
    (False, "a schema must be an object"),
    ([1], "a schema must be an object"),
])
def test_what_is_refused_before_it_is_compiled(schema, reason):
    with pytest.raises(GrammarError) as refusal:
        prepare(json.dumps(schema))
    assert reason in str(refusal.value)


@pytest.mark.parametrize(("schema", "reason"), [
    ({"type": "strin"}, "`type`: Invalid type: strin"),
    ({"$ref": "#/$defs/x"}, "`$ref`: Pointer '/$defs/x' does not exist"),
    ({"type": "string", "pattern": "a(?=b)"}, "`pattern`: "),
    ({"type": "string", "pattern": "a)"}, "`pattern`: "),
    ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, "`oneOf` is supported only where"),
    ({"type": "object", "properties": {"a": {}}, "minProperties": 1}, "`minProperties`"),
    ({"required": "a"}, "required"),
    ({"properties": []}, "properties"),
    ({"anyOf": 3}, "anyOf"),
    ({"allOf": 3}, "allOf"),
    ({"patternProperties": 3}, "patternProperties"),
    ({"enum": 3}, "enum"),
    ({"minLength": -1}, "minLength"),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, "required property 'a'"),
])
async def test_what_the_compiler_refuses(compiler, schema, reason):
    with pytest.raises(GrammarError) as refusal:
        await compiler.compile(GrammarSpec("json", json.dumps(schema)))
    assert reason in str(refusal.value)


async def test_annotations_are_left_out_of_account(compiler):
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T", "description": "D", "$comment": "C",
        "type": "object", "additionalProperties": False, "required": ["title"],
        "properties": {"title": {"type": "string", "default": "x", "examples": ["y"], "deprecated": True}}}
    assert await accepts_of(compiler, GrammarSpec("json", json.dumps(schema)), '{"title":"a"}', "{}") == [True, False]


OPEN = {"properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(("schema", "accepted", "refused"), [
    (OPEN, ["{}", '{"a":1}'], ["3", '{"a":1,"b":2}', '{"a":1 }', '{ "a":1}', '{"a":12345678901234567}']),
    (OPEN | {"additionalProperties": True}, ['{"a":1,"b":2}'], []),
    ({"type": "object"}, ["{}", '{"a":[1,{"b":null}]}'], ["[]", "{ }"]),
    ({"type": "integer"}, ["0", "-12", "9007199254740991"], ["9007199254740992", "1.0", "01"]),
    ({"type": "integer", "minimum": 10**17}, ["100000000000000000"], ["5"]),
    ({"type": "number"}, ["0.5", "-1e5", "3"], [".5", "1."]),
    ({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "null"}}, "required": ["b"]}], "type": "object"},
     ['{"a":1,"b":null}'], ['{"a":1}']),
    ({"type": "string", "pattern": '^[^"]*$'}, ['"abc"', '""'], [r'"a\"b"']),
    ({"type": "string", "pattern": r"^[^\\]+$"}, ['"abc"'], [r'"a\\b"']),
    ({"type": "string", "pattern": r"^\[^a$"}, [], ['"b"']),
    ({"type": "string", "format": "date"}, ['"2024-02-29"', '"1999-12-31"'], ['"2023-02-29"', '"1900-02-29"']),
    ({"type": ["string", "null"], "format": "date"}, ["null", '"2000-02-29"'], ['"x"']),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"äß"', '"abc"'], ['"a"', '"abcd"']),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ['"x"', "null"], ["1"]),
    ({"$defs": {"n": {"properties": {"n": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["n"]}},
      "$ref": "#/$defs/n"}, ['{"n":{"n":null}}'], ['{"n":{}}']),
])
async def test_what_answers_may_be(compiler, schema, accepted, refused):
    try:
        grammar = await compiler.compile(GrammarSpec("json", json.dumps(schema)))
    except GrammarError:
        assert not accepted
        return
    assert [text for text in accepted if not accepts(grammar, text)] == []
    assert [text for text in refused if accepts(grammar, text)] == []
