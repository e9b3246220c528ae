"""Grammars made to take forever: refused, or compiled and followed; either way the test ends."""

import json
import random
from contextlib import suppress

import pytest

from penstock.router.grammar.compiler import MAX_SOURCE
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec
from tests.router.grammar.grammar_driver import draw

STEPS = 60


def chain(keyword: str) -> dict[str, object]:
    """A schema that doubles at each of its 30 references."""
    definitions: dict[str, object] = {"d30": {"type": "string", "pattern": "^a+$"}}
    for number in range(30):
        definitions[f"d{number}"] = {keyword: [{"$ref": f"#/$defs/d{number + 1}"}] * 2}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


def product() -> dict[str, object]:
    """6¹² alternatives, multiplied out."""
    cells = [[f"p{row}_{column}" for column in range(6)] for row in range(12)]
    return {"allOf": [{"anyOf": [{"properties": {name: {"const": 1}}, "required": [name]} for name in names]}
                      for names in cells]}


def filled(start: str, unit: str, end: str) -> str:
    """A source of the greatest length; `@` in its units is their number."""
    units, length = [], len(start) + len(end)
    while length + len(unit) + 8 < MAX_SOURCE:
        units.append(unit.replace("@", str(len(units))))
        length += len(units[-1]) + 1
    return start + ",".join(units) + end


SCHEMAS = {
    "nested arrays": "[" * 10_000 + "]" * 10_000,
    "nested items": '{"items":' * 7_000 + "{}" + "}" * 6_000,
    "nested properties": '{"properties":{"a":' * 60 + "{}" + "}}" * 60,
    "nested any of": '{"anyOf":[' * 49 + "{}" + "]}" * 49,
    "reference to itself": {"$ref": "#"},
    "references in a ring": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "ring with more": {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}}, "$ref": "#/$defs/a"},
    "long chain": {"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1400)} | {"d1400": {}},
                   "$ref": "#/$defs/d0"},
    "any of, doubled": chain("anyOf"),
    "all of, doubled": chain("allOf"),
    "one of, doubled": chain("oneOf"),
    "product": product(),
    "patterns that meet": {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{n}}}c"} for n in range(5, 30)]},
    "nearly too many that meet": {"allOf": [{"pattern": f"(a|b)*a(a|b){{{n}}}c"} for n in range(5, 15)]},
    "patterns of names": {"patternProperties": {f"^p{n}.*a{{1,100}}$": {} for n in range(100)}},
    "many patterns of names": filled('{"patternProperties":{', '"^p@$":{}', "}}"),
    "many items": {"type": "array", "items": {"type": "integer"}, "minItems": 10**9},
    "many equal items": {"type": "array", "items": {"const": "aaaa"}, "minItems": 10**9},
    "long string": {"type": "string", "minLength": 10**9},
    "long string of one letter": {"type": "string", "pattern": "^a+$", "minLength": 10**9},
    "long pattern": {"type": "string", "pattern": "^a{1000000000}$"},
    "pattern and length": {"type": "string", "pattern": "(a|b)*a(a|b){50}c", "minLength": 999, "maxLength": 1000},
    "many properties": {"type": "object", "minProperties": 10**9},
    "multiple": {"type": "integer", "multipleOf": 9973},
    "large numbers": '{"type":"integer","minimum":-1e300,"maximum":' + "9" * 300 + "}",
    "a large enum": filled('{"enum":[', '"v@"', "]}"),
    "a large enum of arrays": filled('{"enum":[', "[@]", "]}"),
    "many alternatives": filled('{"anyOf":[', '{"properties":{"a":{"const":@}},"additionalProperties":false}', "]}"),
    "many properties named": filled('{"properties":{', '"@":{}', "}}"),
    "all of them": filled('{"allOf":[', '{"properties":{"a@":{"const":1}}}', "]}"),
    "one of them": filled('{"oneOf":[', '{"properties":{"a":{"const":@}},"required":["a"]}', "]}"),
    "many lengths": filled('{"prefixItems":[', '{"type":"string","maxLength":1@}', "]}"),
    "many ranges": filled('{"prefixItems":[', '{"type":"integer","minimum":-@77}', "]}"),
    "many patterns": filled('{"prefixItems":[', '{"pattern":"a{1,1@}b"}', "]}"),
    "many formats": filled('{"prefixItems":[', '{"type":"string","format":"uri"}', "]}"),
}
REGEXES = {
    "repeated repetition": "(a{1,1000}){1,1000}",
    "repeated four times": "(((a{1,1000}){1,1000}){1,1000}){1,1000}",
    "stars in stars": "((a*)*)*b",
    "alternatives that overlap": "(a|aa)+b",
    "many states": "(a|b)*a(a|b){200}c",
    "no end": "a{1000000000}",
    "no end after a choice": "b?(((a{1000}){1000}){1000}){1000}",
    "letters of all alphabets": r"(\p{L}{1,1000}\w){1,100}",
    "groups": "(" * 20_000 + "a" + ")" * 20_000,
    "spread": "(.*a.{1,100}b){1,100}",
    "many words": filled("", "v@", "").replace(",", "|"),
}
LARKS = {
    "itself twice": 'start: start start | "a"',
    "itself alone": 'start: start "a" | start',
    "nothing often": 'start: x x x x x x\nx: x x | "a" | ',
    "repeated rules": 'start: (("a"{1,1000}){1,1000}){1,1000}',
    "groups": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000,
    "doubled terminals": "start: A0\n" + "\n".join(f"A{n}: A{n + 1} A{n + 1}" for n in range(60)) + '\nA60: "a"',
    "doubled rules": "start: a0\n" + "\n".join(f"a{n}: a{n + 1} a{n + 1}" for n in range(60)) + '\na60: "a"',
    "a complement": "start: A\nA: ~(/(a|b)*a(a|b){20}c/) & /(?s:.*)/",
    "an intersection": "start: A\nA: " + " & ".join(f"/(a|b)*a(a|b){{{n}}}c/" for n in range(5, 14)),
    "all substrings": 'start: %regex {"substring_chars":"' + "abc" * 20_000 + '"}',
}
BOMBS = [*(("json", name, source) for name, source in SCHEMAS.items()),
         *(("regex", name, source) for name, source in REGEXES.items()),
         *(("lark", name, source) for name, source in LARKS.items())]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("kind", "source"), [(kind, source) for kind, _, source in BOMBS],
                         ids=[f"{kind}-{name}" for kind, name, _ in BOMBS])
async def test_a_bomb(compiler, kind, source):
    text = source if isinstance(source, str) else json.dumps(source)
    with suppress(GrammarError):
        grammar = await compiler.compile(GrammarSpec(kind, text))
        draw(grammar, random.Random(1), max_tokens=STEPS)
