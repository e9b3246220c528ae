"""The work of reading calls: it grows with the answer's length and no faster, whatever the answer is."""

import sys

import pytest

from penstock.router.chat.tools.call_format import KEY, CallFormat, Tagged
from penstock.router.chat.tools.families import FORMATS
from penstock.router.chat.tools.offer import Offer, Tool
from penstock.router.chat.tools.parser import CallParser
from penstock.router.chat.tools.pattern import MAX_HEADER
from penstock.router.chat.tools.tagged import MAX_LOOK
from tests.router.chat.tools.calls import written

OFFER = Offer((Tool("f", None, {"properties": {"s": {"type": "string"}, "a": {"type": "array"}}}),
               Tool("patch", None, {"properties": {"input": {"type": "string"}}}, is_custom=True)))
LONGEST = MAX_HEADER + MAX_LOOK
"""The most characters that may be undecided at once."""
QUICK = ("hermes", "qwen3_coder", "pythonic")
KINDS = [form for form in FORMATS if form.prose or form.name in (
    *QUICK, "mistral", "glm45", "deepseek_v32", "kimi_k2", "llama", "lfm2")]


def endless(form: CallFormat) -> dict[str, str]:
    """Beginnings of answers, and the text that they go on with for ever."""
    string, array = written(form, ("f", {"s": "x"})), written(form, ("f", {"a": [1]}))
    texts = {"string": (string[:string.rindex("x")], 'a"\\n '), "array": (array[:array.rindex("1")], "1, "),
             "custom": (written(form, ("patch", {"input": "x"})).rpartition("x")[0], "a\n"), "text": ("", "a < b. "),
             "marks": ("", form.marker or "["), "blanks": (string, " \n"), "begins": ("", form.begin or "{"),
             "name": (string[:string.index("f")], "name")}
    if isinstance(form.arguments, Tagged):
        texts["tags"] = (string[:string.rindex("x")], form.arguments.shut)
        texts["look"] = (string[:string.rindex("x")] + form.arguments.shut, " ")
        texts["key"] = (string[:string.index(form.arguments.open.partition(KEY)[0])] +
                        form.arguments.open.partition(KEY)[0], "key")
    else:
        custom = texts["custom"][0]
        texts["no input"] = (custom[:custom.rindex("input") - 1].rstrip(), " ")
    return {name: begin + more * (4500 // len(more)) for name, (begin, more) in texts.items()}


def works(form: CallFormat, text: str) -> list[int]:
    """The number of calls that reading each third of the text takes, a character at a time."""
    parser, calls, third = CallParser(form, OFFER), [0, 0, 0], len(text) // 3
    part = 0

    def count(*_: object) -> None:
        calls[part] += 1

    before = sys.getprofile()
    for place, character in enumerate(text[:3 * third]):
        part = place // third
        sys.setprofile(count)
        parser.push(character)
        sys.setprofile(before)
        assert len(parser._text) <= LONGEST
    return calls


@pytest.mark.parametrize("form", [
    pytest.param(form, id=form.models, marks=() if form.name == QUICK[0] else pytest.mark.slow) for form in KINDS])
def test_twice_the_text_is_twice_the_work(form: CallFormat) -> None:
    """Beyond what is looked ahead at the most."""
    for name, text in endless(form).items():
        _, second, third = works(form, text)
        assert third <= 1.3 * second, name


@pytest.mark.slow
@pytest.mark.parametrize("form", [form for form in KINDS if form.name in QUICK], ids=lambda form: form.models)
def test_a_megabyte_of_characters(form: CallFormat) -> None:
    text = written(form, ("f", {"s": 'a"\n\\ ' * 200_000, "a": []}))
    parser = CallParser(form, OFFER)
    num_pieces = sum(len(parser.push(character)) for character in text)
    assert len(parser._text) <= LONGEST
    assert num_pieces >= 700_000
