import time
from contextlib import suppress

import pytest

from penstock.router.grammar.compiler import MAX_SOURCE, expression
from penstock.router.grammar.forms import parse_grammar
from penstock.router.grammar.gbnf import to_lark
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec
from tests.router.grammar.grammar_driver import accepts_of

ARITHMETIC = """
# sums of numbers
root ::= sum ("=" number)?    # which may be told
sum ::= term
      | sum "+" term
term ::= number | "(" sum ")"
number ::= [1-9] [0-9]{0,2} | "0"
"""


async def test_rules_that_call_themselves(compiler):
    spec = parse_grammar({"type": "ebnf", "value": ARITHMETIC})
    assert await accepts_of(compiler, spec, "1+(2+30)=33", "0", "(1)", "1+", "01", "") == [
        True, True, True, False, False, False]


@pytest.mark.parametrize(("source", "right", "wrong"), [
    (r'root ::= "\u0041\x42\n\"\\"', 'AB\n"\\', "AB"),
    ('root ::= "a\x7f\tb"', "a\x7f\tb", "ab"),
    (r'root ::= "\u00e9\U0001F600"', "é😀", "e"),
    (r"root ::= [\u00e0-\u00ff]", "é", "e"),
    (r'root ::= [^\x00-\x1f"\\]', "z", '"'),
    (r"root ::= [a&&b~~c]+", "a&b~", "d"),
    (r"root ::= [\]\[/-]+", "[/]-", "a"),
    ("root ::= . . # two", "\n.", "a"),
    ('root ::= "#" "|"\n', "#|", "#"),
    ('root ::= "a"\r\n  | "b"\r\n', "b", "c"),
    ('root ::= a-b\na-b ::= ("x" |\n  "y"){2}', "xy", "x"),
])
async def test_what_is_written(compiler, source, right, wrong):
    assert await accepts_of(compiler, parse_grammar({"type": "ebnf", "value": source}), right, wrong) == [True, False]


@pytest.mark.parametrize(("source", "sentence"), [
    ('root ::= "a', "it can't be read: Unexpected end of input at line 1"),
    ("root ::= a", "it can't be read: Rule 'a' not found"),
    ('a ::= "a"', "it can't be read: No 'root' rule found"),
    ('root ::= "\\', "it can't be read: "),
    ("root ::= " + "(" * 10_000, "it can't be read: its groups are nested too deep"),
    (r'root ::= "\ud800"', "it can't be read: "),
    (r'root ::= "\UFFFFFFFF"', "it can't be read: "),
    ("root ::= [b-a]", "invalid regex"),
])
async def test_one_that_is_none(compiler, source, sentence):
    with pytest.raises(GrammarError) as refusal:
        await compiler.compile(GrammarSpec("gbnf", source))
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("source", [
    'root ::= "a"' + "\n" * 60_000 + '| "b"', 'root ::= "a"\n' + "#\n" * 30_000, "root ::= " + "[" * 60_000,
    "root ::= " + '"\\"' * 20_000, 'root ::= "' + '\\"' * 30_000 + "\\"], ids=lambda source: source[9:20])
def test_the_longest_is_read_in_linear_time(source):
    """Python's lock is held meanwhile: nothing else runs."""
    begin = time.process_time()
    with suppress(GrammarError):
        assert to_lark(source).startswith("start: ")
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("kind", ["json", "gbnf", "lark", "regex"])
def test_one_that_is_too_long_is_no_part_of_another(kind):
    with pytest.raises(GrammarError, match=r"at most 65536 characters\. Given: 65537"):
        expression(GrammarSpec(kind, " " * (MAX_SOURCE + 1)))
