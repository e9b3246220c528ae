"""Grammars of tool calls, as models write them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from router.grammar.matcher import GrammarError
from router.grammar.schema import prepare
from router.grammar.spec import GrammarSpec

_MAX_TOOLS = 128


@dataclass(frozen=True, slots=True)
class Tool:
    """`parameters`: the JSON schema of its arguments; None takes any object."""

    name: str
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a family of models writes its calls.

    An answer with calls is `begin`, calls with `separator` between them, `end`; each call is `before`, a JSON object of
    `name_key` and `arguments_key`, `after`. Without a separator there is one call. With a `wrapper`, the call is TGI's:
    an object of that one key, and in it the arguments beside the name.
    """

    begin: str = ""
    end: str = ""
    before: str = ""
    after: str = ""
    separator: str | None = None
    name_key: str = "name"
    arguments_key: str = "arguments"
    wrapper: str | None = None


HERMES = CallForm(before="<tool_call>\n", after="\n</tool_call>", separator="\n")
"""Also Qwen's."""
LLAMA = CallForm(arguments_key="parameters")
MISTRAL = CallForm(begin="[TOOL_CALLS] [", end="]", separator=", ")
TGI = CallForm(name_key="_name", wrapper="function")
"""For models without a form of their own: TGI's prompt asks for it."""

# Models learnt calls as json.dumps writes them, with single spaces; more than one would let a weak one go on forever.
_ITEM, _KEY = ", ?", ": ?"


def lark_of_calls(
    form: CallForm, tools: Sequence[Tool], *, is_parallel: bool = True, is_required: bool = True,
    special_ids: Mapping[str, int] | None = None,
) -> GrammarSpec:
    """Accepts calls of `tools` in `form` with valid arguments: several if `is_parallel` and the form has a way.

    Unless `is_required`, any text may come first, or instead; in it, what begins as calls do must go on as one.
    `special_ids` are the tokenizer's special tokens: where the form contains one, it is that token. GrammarError names
    the tool whose parameters can't be compiled.
    """
    if not tools or len(tools) > _MAX_TOOLS:
        raise GrammarError(f"there must be between 1 and {_MAX_TOOLS} tools. Given: {len(tools)}")
    special_ids = special_ids or {}
    more = form.separator is not None and is_parallel
    first, rest = form.begin + form.before, _literal(form.before, special_ids)
    calls = [f"call {_literal(form.after, special_ids)}"]
    if more:
        separator = _literal(form.separator or "", special_ids)
        calls.append(f"({separator} {rest} call {_literal(form.after, special_ids)})*")
    calls.append(_literal(form.end, special_ids))
    rules = [f"calls: {' '.join(calls)}", f"call: {' | '.join(f'call{number}' for number in range(len(tools)))}"]
    rules += [f"call{number}: {_call(form, tool)}" for number, tool in enumerate(tools)]
    start = _start(first, special_ids, is_required)
    return GrammarSpec("lark", "\n".join([*start, *rules]))


def _start(first: str, special_ids: Mapping[str, int], is_required: bool) -> list[str]:
    """How an answer gets to its first call, whose `first` text is not in `calls`."""
    if is_required:
        return [f"start: {_literal(first, special_ids)} calls"]
    if not first:  # a call is known by its brace
        return ["start: /[^{](.|\\n)*/ | calls"]
    special = next((token for token in special_ids if first.startswith(token)), None)
    if special is not None:
        after = _literal(first.removeprefix(special), special_ids)
        return ["start: TEXT | TEXT? opening calls", f"opening: <[{special_ids[special]}]> {after}", "TEXT: /(.|\\n)+/"]
    marker = first.rstrip()
    rest = _literal(first.removeprefix(marker), {})
    return ["start: TEXT | opening calls", f"opening: marker {rest}", f"marker[lazy]: TEXT? {_literal(marker, {})}",
            "TEXT: /(.|\\n)+/"]


def _call(form: CallForm, tool: Tool) -> str:
    parameters: dict[str, Any] = dict(tool.parameters or {})
    name = json.dumps(tool.name)
    try:
        if form.wrapper is not None:
            schema = _json({**parameters, **_with_name(form.name_key, tool.name, parameters)})
            return f"{_regex(f'{{{json.dumps(form.wrapper)}', _KEY)} %json {schema} {_literal('}', {})}"
        schema = _json({"type": "object"} | parameters)
    except GrammarError as error:
        raise GrammarError(f"the parameters of {name}: {error}") from error
    start = _regex(f"{{{json.dumps(form.name_key)}", _KEY, name, _ITEM, json.dumps(form.arguments_key), _KEY)
    return f"{start} %json {schema} {_literal('}', {})}"


def _with_name(key: str, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What the schema of the arguments becomes when the function's name is one of them, the first."""
    properties, required = parameters.get("properties", {}), parameters.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise GrammarError("`properties` must be an object and `required` a list")
    return {"type": "object", "properties": {key: {"const": name}, **properties}, "required": [key, *required]}


def _json(schema: dict[str, Any]) -> str:
    try:
        return prepare(orjson.dumps(schema).decode(), _ITEM, _KEY)
    except orjson.JSONEncodeError as error:
        raise GrammarError(f"the schema can't be read: {error}") from error


def _literal(text: str, special_ids: Mapping[str, int]) -> str:
    """Lark for a text, with the special tokens in it as tokens."""
    if not text:
        return ""
    pattern = "|".join(map(re.escape, sorted(special_ids, key=len, reverse=True)))
    parts = re.split(f"({pattern})", text) if pattern else [text]
    return " ".join(f"<[{special_ids[part]}]>" if part in special_ids else json.dumps(part, ensure_ascii=False)
                    for part in parts if part)


def _regex(*parts: str) -> str:
    """Texts, and between them the patterns of separators."""
    return "/" + "".join(part if part in (_ITEM, _KEY) else _escaped(part) for part in parts) + "/"


def _escaped(text: str) -> str:
    """Of JSON, so that no line ends in it."""
    return re.sub(r"([\\.+*?()|\[\]{}^$#&~/-])", r"\\\1", text)
