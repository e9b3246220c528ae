"""Calls of tools as models write them, by the description of their format."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Delta
from penstock.router.chat.tools.call_format import (
    FROM_ID,
    HERE,
    ID,
    KEY,
    KIND,
    NAME,
    NUMBER,
    TO_ID,
    WORD,
    CallFormat,
    Keywords,
    Tagged,
)
from penstock.router.chat.tools.grammar_python import python_literal
from penstock.router.chat.tools.offer import Offer, Tool
from penstock.router.chat.tools.parser import CallParser

Call = tuple[str, Mapping[str, Any]]


def written(form: CallFormat, *calls: Call) -> str:
    """All of an answer that is nothing but calls."""
    each = [one(form, name, arguments, number) for number, (name, arguments) in enumerate(calls)]
    return form.begin.removeprefix(form.opened) + form.separator.join(each) + form.end


def one(form: CallFormat, name: str, arguments: Mapping[str, Any] | str, number: int = 0) -> str:
    """One call; its arguments may be a text that stands in their place."""
    header = form.header.replace(NAME, json.dumps(name, ensure_ascii=False)).replace(WORD, name)
    for hole, text in ((NUMBER, str(number)), (ID, f"abcdefgh{number}"), (FROM_ID, ""), (TO_ID, ""), (HERE, "")):
        header = header.replace(hole, text)
    return header + (arguments if isinstance(arguments, str) else in_form(form, arguments)) + form.close


def in_form(form: CallFormat, arguments: Mapping[str, Any]) -> str:
    match form.arguments:
        case Tagged() as tags:
            return "".join(_parameter(tags, key, value) for key, value in arguments.items())
        case Keywords():
            return ", ".join(f"{key}={python_literal(value)}" for key, value in arguments.items())
    return json.dumps(arguments, ensure_ascii=False)


def _parameter(tags: Tagged, key: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    kind = (tags.kinds or ("", ""))[0 if isinstance(value, str) else 1]
    opening = tags.open.replace(KEY, key).replace(KIND, kind)
    before = "" if opening.endswith(tags.pad) else tags.pad
    return opening + before + text + tags.pad + tags.shut + tags.after


def joined(deltas: Sequence[Delta]) -> list[Delta]:
    """With neighbours of one kind as one."""
    whole: list[Delta] = []
    for delta in deltas:
        if whole and isinstance(delta, Content) and isinstance(whole[-1], Content):
            whole[-1] = Content(whole[-1].text + delta.text)
        elif whole and isinstance(delta, Arguments) and isinstance(whole[-1], Arguments):
            assert delta.index == whole[-1].index
            whole[-1] = Arguments(delta.index, whole[-1].text + delta.text)
        else:
            whole.append(delta)
    return whole


def parse(form: CallFormat, *pieces: str, offer: Offer | None = None) -> list[Delta]:
    parser = CallParser(form, offer)
    return joined([delta for piece in pieces for delta in parser.push(piece)] + parser.finish())


def calls_of(deltas: Sequence[Delta]) -> list[tuple[str, Any]]:
    """The calls in an answer that are whole, and their arguments as values."""
    texts = {delta.index: "" for delta in deltas if isinstance(delta, CallBegin)}
    for delta in deltas:
        if isinstance(delta, Arguments):
            texts[delta.index] += delta.text
    ended = {delta.index for delta in deltas if isinstance(delta, CallEnd)}
    return [(delta.name, json.loads(texts[delta.index])) for delta in deltas
            if isinstance(delta, CallBegin) and delta.index in ended]


def content_of(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, Content))


WORDS = ("a", "Köln", "日本", "😀", '"', "'", "\\", "\n", "\t", " ", "\\n", "{", "}", "[", "]", "(", ")", "=", ",", ":",
         "<", ">", "</", "true", "None", "12", "'''", '"""', "\x7f", "\u2028", "&lt;", "</think>", "```")
"""What strings are made of, beside the texts of the format itself."""
KEYS = ("city", "days", "a_b", "Größe", "x1", "none", "is_it", "list", "map", "text")


def words_of(form: CallFormat) -> list[str]:
    """What strings of calls in this format are made of."""
    texts = [form.marker, form.close, form.separator, form.end]
    if isinstance(form.arguments, Tagged):
        texts += [form.arguments.shut, form.arguments.pad + form.arguments.shut, form.arguments.open.partition(KEY)[0]]
    return [*WORDS, *filter(None, texts)]


def is_clear(form: CallFormat, calls: list[Call]) -> bool:
    """Whether no string has a closing tag followed by what follows one: that could be read in two ways."""
    if not isinstance(form.arguments, Tagged):
        return True
    follows = "|".join(map(re.escape, (form.arguments.open.partition(KEY)[0], *form.close_marks)))
    text = json.dumps(calls, ensure_ascii=False).replace("\\n", " ").replace("\\t", " ").replace("\\", "")
    return not re.search(rf"{re.escape(form.arguments.shut)}\s*(?:{follows})", text)


TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")


def draw_tools(dice: random.Random, kinds: Sequence[str] = TYPES) -> list[dict[str, Any]]:
    """Some tools, as templates are told of them, whose parameters have these types."""
    tools = []
    for name in dice.sample(("weather", "time_of", "f", "get-it", "mcp__a__b"), 2):
        keys = dice.sample(KEYS, dice.randrange(5))
        properties = {key: {"type": dice.choice(kinds), "description": "Of it."} for key in keys}
        tools.append({"type": "function", "function": {
            "name": name, "description": "Does it.", "parameters": {
                "type": "object", "properties": properties, "required": keys}}})
    return tools


def offer_of(tools: Sequence[Mapping[str, Any]]) -> Offer:
    return Offer(tuple(
        Tool(tool["function"]["name"], None, tool["function"]["parameters"], told=dict(tool)) for tool in tools))


def draw_calls(dice: random.Random, tools: Sequence[Mapping[str, Any]], words: Sequence[str], most: int) -> list[Call]:
    """Calls of tools with values of their types."""
    calls: list[Call] = []
    for _ in range(dice.randint(1, most)):
        function = dice.choice(tools)["function"]
        properties = function["parameters"]["properties"]
        calls.append((function["name"], {
            key: draw_value(dice, schema["type"], words) for key, schema in properties.items()}))
    return calls


def draw_value(dice: random.Random, kind: str, words: Sequence[str], depth: int = 0) -> Any:
    match kind:
        case "string":
            return "".join(dice.choice(words) for _ in range(dice.randrange(7)))
        case "integer":
            return dice.choice([0, -1, 7, 2**62])
        case "number":
            return dice.choice([0.5, -1.25, 3, 1e100])
        case "boolean":
            return dice.random() < 0.5
        case "null":
            return None
    inner = ("string", "integer", "number", "boolean", "null") + ("array", "object") * (depth < 2)
    values = [draw_value(dice, dice.choice(inner), words, depth + 1) for _ in range(dice.randrange(4))]
    return values if kind == "array" else dict(zip(dice.sample(KEYS, len(values)), values, strict=True))
