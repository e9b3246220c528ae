import itertools

import pytest

from penstock.router.chat.answer_form import TextParser
from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Thinking
from penstock.router.chat.harmony_parser import HarmonyParser
from penstock.router.chat.thinking_format import named_format
from penstock.router.chat.thinking_parser import ThinkingParser
from penstock.router.chat.tools.offer import Offer, Tool

OFFER = Offer((Tool("f", None, {}),))
QWEN, GRANITE, ERNIE = named_format("qwen3"), named_format("granite"), named_format("ernie45")


def joined(deltas):
    """The deltas with neighbours of a kind joined."""
    groups = itertools.groupby(deltas, key=lambda delta: (type(delta), getattr(delta, "index", None)))
    return [kind("".join(each.text for each in group)) if index is None
            else kind(index, "".join(each.text for each in group)) if kind is Arguments else next(group)
            for (kind, index), group in groups]


def read(parser, *pieces):
    return joined([delta for piece in pieces for delta in parser.push(piece)] + parser.finish())


def parser_of(form, is_open=False):
    return ThinkingParser(form, is_open, TextParser())


ANSWERS = [
    (QWEN, False, "<think>\nWell.\n\nSo\n</think>\n\nYes.", [Thinking("Well.\n\nSo"), Content("Yes.")]),
    (QWEN, False, "\n<think></think>Yes", [Content("Yes")]),
    (QWEN, False, "Yes <think>no</think>", [Content("Yes <think>no</think>")]),
    (QWEN, False, "  <thin", [Content("  <thin")]),
    (QWEN, False, " \n", [Content(" \n")]),
    (QWEN, False, "", []),
    (QWEN, False, "</think>\n\nYes", [Content("Yes")]),
    (QWEN, False, "</thin", [Content("</thin")]),
    (QWEN, True, "a <b> </think", [Thinking("a <b> </think")]),
    (QWEN, True, "a </think> \n", [Thinking("a")]),
    (QWEN, True, "a\n</think>b</think>c", [Thinking("a"), Content("b</think>c")]),
    (QWEN, True, "a\n \n", [Thinking("a")]),
    (QWEN, True, "</think>\n\n", []),
    (QWEN, True, "<</t</think>x", [Thinking("<</t"), Content("x")]),
    (GRANITE, False, "Here is my thought process: one. Here is my response: two",
     [Thinking("one."), Content("two")]),
    (ERNIE, True, "a\n</think>\n\n<response>\nb\n</response>\n", [Thinking("a"), Content("b\n")]),
    (ERNIE, True, "a</think>\n<resp", [Thinking("a"), Content("<resp")]),
    (ERNIE, True, "a</think>b <response>", [Thinking("a"), Content("b <response>")]),
    (ERNIE, True, "a</think><response>b </respon", [Thinking("a"), Content("b </respon")]),
    (named_format("mistral"), False, "[THINK]a[b[/THINK]c", [Thinking("a[b"), Content("c")]),
    (named_format("kimi"), True, "a◁b◁/think▷c", [Thinking("a◁b"), Content("c")]),
]


@pytest.mark.parametrize(("form", "is_open", "text", "deltas"), ANSWERS)
def test_answers_cut_anywhere(form, is_open, text, deltas):
    assert read(parser_of(form, is_open), text) == deltas
    assert read(parser_of(form, is_open), *text) == deltas
    for first in range(len(text)):
        for second in range(first, min(len(text), first + 12)):
            assert read(parser_of(form, is_open), text[:first], text[first:second], text[second:]) == deltas


def test_thoughts_come_as_they_are_thought():
    parser = parser_of(QWEN, is_open=True)
    assert parser.push("Let") == [Thinking("Let")]
    assert parser.push(" me ") == [Thinking(" me")]
    assert parser.push("see <") == [Thinking(" see")]
    assert parser.num_held
    assert parser.push("b") == [Thinking(" <b")]
    assert parser.is_thinking
    assert parser.push("</think>") == []
    assert not parser.is_thinking
    assert parser.push("\n\n") == []
    assert parser.push("x") == [Content("x")]
    assert parser.push(" ") == [Content(" ")]


def test_much_white_space_takes_no_longer():
    parser = parser_of(QWEN, is_open=True)
    assert read(parser, "a", *"\n" * 20_000, "b", *"\n" * 20_000, "</think>", *"\n" * 20_000, "c") == [
        Thinking("a" + "\n" * 20_000 + "b"), Content("c")]
    assert read(parser_of(QWEN), *"\n" * 20_000, "c") == [Content("\n" * 20_000 + "c")]


C, M, E, S = "<|channel|>", "<|message|>", "<|end|>", "<|start|>assistant"
HARMONY = [
    (f"{C}analysis{M}Hm <|b{E}{S}{C}final{M}Yes <|", [Thinking("Hm <|b"), Content("Yes <|")]),
    (f"{C}final{M}Yes<|return|>", [Content("Yes")]),
    (f"{C}analysis{M}a{E}{S}{C}analysis{M}b{E}{S}{C}final{M}", [Thinking("a\n\nb")]),
    (f"{C}analysis{M}a{E}{S}{C}commentary to=functions.f <|constrain|>json{M}{{\"x\": 1}}<|call|>",
     [Thinking("a"), CallBegin(0, "f"), Arguments(0, '{"x": 1}'), CallEnd(0)]),
    (f" to=functions.f{C}commentary json{M}{{}}", [CallBegin(0, "f"), Arguments(0, "{}"), CallEnd(0)]),
    (f"{C}commentary to=functions.f{M}{{\"x\": ", [CallBegin(0, "f"), Arguments(0, '{"x": ')]),
    (f"{C}commentary{M}I look.{E}{S} to=functions.g{C}commentary{M}{{}}<|call|>",
     [Content("I look."), CallBegin(0, "g"), Arguments(0, "{}"), CallEnd(0)]),
    (f"{C}commentary{M}I look.{E}{S}{C}final{M}Done.", [Content("I look.\n\nDone.")]),
    (f"{C}commentary to=f{M}{{}}", [CallBegin(0, "f"), Arguments(0, "{}"), CallEnd(0)]),
    (f"{C}analysis to=python code{M}print(1){E}{S}{C}final{M}1", [Thinking("print(1)"), Content("1")]),
    ("Hello <|channel|>", [Content("Hello <|channel|>")]),
    (f"{C}final", []),
    (f"{C}" + "a" * 2000, [Content(f"{C}" + "a" * 2000)]),
]


@pytest.mark.parametrize(("text", "deltas"), HARMONY, ids=lambda each: str(each)[:30])
def test_channels_cut_anywhere(text, deltas):
    assert read(HarmonyParser(OFFER), text) == deltas
    assert read(HarmonyParser(OFFER), *text) == deltas
    for cut in range(0, len(text), 1 + len(text) // 200):
        assert read(HarmonyParser(OFFER), text[:cut], text[cut:]) == deltas


def test_channels_come_as_they_are_written():
    parser = HarmonyParser()
    assert parser.push("<|channel|>") == parser.push("analysis") == []
    assert not parser.is_thinking
    assert parser.push("<|message|>") == []
    assert parser.is_thinking
    assert parser.push("a ") == [Thinking("a ")]
    assert parser.push("<|end|>") == []
    assert not parser.is_thinking


def test_channels_that_the_prompt_has_opened():
    assert read(HarmonyParser(is_open=True), f"a{E}{S}{C}final{M}b") == [Thinking("a"), Content("b")]
