"""Answers drawn from random schemas' masks finish, and those that finish are valid."""

import json
import random

import pytest
from jsonschema import Draft202012Validator

from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.grammar.spec import GrammarSpec
from tests.router.grammar.grammar_driver import draw
from tests.router.grammar.schema_maker import SchemaMaker

MAX_TOKENS = 600


async def num_finished(compiler: GrammarCompiler, seed: int, num_schemas: int) -> int:
    """How many of them did; those are valid, and JSON without white space between its parts."""
    maker, dice = SchemaMaker(seed), random.Random(seed)
    finished = 0
    for _ in range(num_schemas):
        schema = maker.make()
        grammar = await compiler.compile(GrammarSpec("json", json.dumps(schema)))
        text = draw(grammar, dice, MAX_TOKENS)
        if text is not None:
            finished += 1
            answer = json.loads(text)
            Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(answer)
    return finished


def test_schemas_are_schemas_and_follow_from_the_seed():
    schemas = [SchemaMaker(3).make() for _ in range(2)]
    assert schemas[0] == schemas[1]
    for _ in range(50):
        Draft202012Validator.check_schema(SchemaMaker(7).make())


async def test_some(compiler):
    assert await num_finished(compiler, seed=5, num_schemas=40) >= 38


@pytest.mark.slow
async def test_a_thousand(compiler):
    assert await num_finished(compiler, seed=1, num_schemas=1000) >= 950
