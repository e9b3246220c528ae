"""The tokens that a server elsewhere says an answer has taken, in the words of each API."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

_HAS_ANY = re.compile(rb'"(?:usage|details)" ?: ?\{')
_DATA = re.compile(rb"^data: ?(.*?)\r?$", re.MULTILINE)
PROMPT_TOKENS, GENERATED_TOKENS = "x-prompt-tokens", "x-generated-tokens"
"""TGI's headers."""


@dataclass(frozen=True, slots=True)
class ToldTokens:
    """Counts the tokens of prompts, those of them that were in the server's cache, and those of answers."""

    input: int = 0
    cached: int = 0
    output: int = 0


NONE = ToldTokens()


def of_answer(body: bytes, headers: Mapping[str, str]) -> ToldTokens:
    """Returns the tokens that a whole answer tells of, by its headers or in its body."""
    if GENERATED_TOKENS in headers:
        return ToldTokens(_number(headers.get(PROMPT_TOKENS)), 0, _number(headers[GENERATED_TOKENS]))
    return _of(body, NONE) if _HAS_ANY.search(body) else NONE


def of_events(events: bytes, before: ToldTokens) -> ToldTokens:
    """Returns the tokens of which events of a stream tell, or those `before` them. The latest numbers hold."""
    if _HAS_ANY.search(events):
        for data in _DATA.findall(events):
            before = _of(data, before)
    return before


def _of(data: bytes, before: ToldTokens) -> ToldTokens:
    with suppress(orjson.JSONDecodeError):
        content = orjson.loads(data)
        for each in content if isinstance(content, list) else [content]:
            if isinstance(each, dict):
                before = _of_object(each, before)
    return before


def _of_object(content: dict[str, Any], before: ToldTokens) -> ToldTokens:
    inner = _object(content, "response") or _object(content, "message")  # of OpenAI's responses, and of Anthropic's
    usage = _object(content, "usage") or _object(inner, "usage")
    details = _object(content, "details")
    told = _object(usage, "prompt_tokens_details") or _object(usage, "input_tokens_details")
    found = {
        "input": _first(usage, "prompt_tokens", "input_tokens") or _first(details, "input_length"),
        "cached": _first(told, "cached_tokens"),
        "output": _first(usage, "completion_tokens", "output_tokens") or _first(details, "generated_tokens")}
    if "cache_read_input_tokens" in usage:  # Anthropic's, which are not among its `input_tokens`
        found["cached"] = _number(usage["cache_read_input_tokens"])
        found["input"] += found["cached"] + _first(usage, "cache_creation_input_tokens")
    return ToldTokens(*(found[name] or getattr(before, name) for name in ("input", "cached", "output")))


def _object(content: dict[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _first(content: dict[str, Any], *names: str) -> int:
    return next((number for name in names if (number := _number(content.get(name)))), 0)


def _number(given: object) -> int:
    """Returns a number of tokens; 0 for anything that can't be one."""
    text = str(given)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else 0
