"""How many tokens of an answer are thoughts, and how many calls it has."""

from typing import Any, cast

import pytest

from penstock.router.chat.answer_form import AnswerForm
from penstock.router.chat.deltas import Content, Thinking
from penstock.router.chat.thinking_format import named_format
from penstock.router.engine.stream import Ending, Event, Token
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.turns.turn_reader import TurnReader

THINK = AnswerForm(thinking=named_format("think"))
CHANNELS = AnswerForm(thinking=named_format("harmony"))
CALL = ("<|channel|>", "commentary to=functions.f", "<|message|>", "{}", "<|call|>")


def read(form: AnswerForm, *texts: str) -> TurnReader:
    """Reads an answer of tokens with these texts."""
    reader = TurnReader(cast(Any, None), form, "name")
    for number, text in enumerate(texts, 1):
        ending = Ending(FinishReason.LENGTH, "".join(texts), number) if number == len(texts) else None
        reader.read(Event(Token(1, text, 0.0, False), ending))
    return reader


@pytest.mark.parametrize(("texts", "number"), [
    (("<think>", "a", "b", "</think>", "c"), 2), (("<", "think", ">", "a", "</", "think", ">", "c"), 1),
    (("<think>", "a", " <", "</think>", "c"), 2), (("<think>", "a</", "think", ">c"), 1), (("<think>", "a", "</"), 1),
    (("<think>", "a", "</", "b", "</think>"), 3), (("<think>", "a\ufffd", "", "b", "</think>"), 3),
    (("<think>", "</think>", "a"), 0), (("a", "b"), 0)])
def test_a_token_is_thought_that_begins_before_the_mark(texts: tuple[str, ...], number: int) -> None:
    assert read(THINK, *texts).num_thinking_tokens == number


def test_parts_of_a_mark_are_no_thoughts_of_the_next_message() -> None:
    """Thoughts may come twice where an answer is in channels."""
    thoughts = ("<|channel|>", "analysis", "<|message|>", "a", "<|", "end", "|>", "<|start|>", "assistant")
    assert read(CHANNELS, *thoughts, *thoughts).num_thinking_tokens == 2


def test_what_nobody_has_offered_is_not_called() -> None:
    reader = read(CHANNELS, *CALL, "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Yes.")
    assert reader.num_calls == 0
    parser = CHANNELS.parser()
    assert parser.push("".join(CALL) + "<|start|>assistant<|channel|>final<|message|>Yes.") == [
        Thinking("{}"), Content("Yes.")]
