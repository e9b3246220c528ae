"""Forms of answers, as programs ask for them."""

import re

import pytest

from penstock import LLM, SamplingParams, StructuredOutputsParams
from penstock.offline.asking import Question
from penstock.offline.prompts import Prompt

QUERY = """
root ::= query
query ::= "SELECT " column " FROM " table (" WHERE " column "= " number)?  # a comment
column ::= "first " | "second "
table ::= "one " | "two "
number ::= [1-9] [0-9]{0,2} " "
"""


def asked(llm: LLM, grammar: str) -> str:
    form = StructuredOutputsParams(grammar=grammar)
    [output] = llm.generate("A query: ", SamplingParams(temperature=0, max_tokens=60, structured_outputs=form),
                            use_tqdm=False)
    return output.outputs[0].text


def test_a_grammar_in_two_notations(llm: LLM) -> None:
    assert re.fullmatch(r"SELECT (first|second)  FROM (one|two) ( WHERE (first|second) = \d{1,3} )?",
                        asked(llm, QUERY))
    assert re.fullmatch(r"a{2,3}", asked(llm, 'start: "a"{2,3}'))


@pytest.mark.parametrize(("grammar", "sentence"), [
    ('root ::= "a', "Unexpected end of input at line 1"),
    ("root ::= a", "Rule 'a' not found"),
    ('a ::= "a"', "No 'root' rule found"),
    ("root ::= \"\\", "string index out of range"),
    ("root ::= " + "(" * 10_000, "nested too deep"),
], ids=lambda case: case[:20])
def test_a_grammar_that_is_none_is_refused(llm: LLM, grammar: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"grammar is not valid: it can't be read: .*{sentence}"):
        asked(llm, grammar)


def test_a_question_keeps_the_parameters_that_it_was_asked_with() -> None:
    params = SamplingParams()
    question = Question("1", Prompt("a"), params)
    params.logprobs = 5
    assert question.params == SamplingParams()
