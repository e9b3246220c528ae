"""Requests of every kind, and what of an answer must never change."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.e2e.prompts import source

PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 2, "maxItems": 5}},
    "required": ["name", "age", "tags"], "additionalProperties": False}
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"path": {"type": "string", "maxLength": 16}, "depth": {"enum": [1, 2, 3]}},
    "required": ["path", "depth"], "additionalProperties": False}}} for name in ("walk", "glob")]
PER_KIND = 4
VARIABLE = ("id", "created", "prefix_hit_tokens", "prompt_tokens_details", "seed", "drafted_tokens", "accepted_tokens",
            "completion_tokens_details", "item_id", "call_id", "created_at", "completed_at", "input_tokens",
           "cache_read_input_tokens", "input_tokens_details")
"""Keys of an answer that may differ between two equal requests."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, and the kind that it is of."""

    kind: str
    path: str
    body: dict[str, Any]

    @property
    def is_stream(self) -> bool:
        return self.path == "/generate_stream" or bool(self.body.get("stream"))

    def __str__(self) -> str:
        return f"{self.kind}: POST {self.path} {json.dumps(self.body)}"


def make_asks(rng: random.Random) -> list[Ask]:
    """Returns `PER_KIND` requests of each kind. All have a seed where they draw, so that each has one right answer."""
    return [Ask(name, *make(rng)) for name, make in _KINDS.items() for _ in range(PER_KIND)]


def with_adapters(asks: Sequence[Ask], names: Sequence[str | None], rng: random.Random) -> list[Ask]:
    """Returns the requests, each for one of these adapters, or for the base if it is None."""
    return [_with_adapter(ask, rng.choice(names)) for ask in asks]


def _with_adapter(ask: Ask, name: str | None) -> Ask:
    if name is None:
        return ask
    own = {"parameters": {**ask.body["parameters"], "adapter_id": name}} if "inputs" in ask.body else {"model": name}
    return replace(ask, body={**ask.body, **own})


def completion_lines(text: str) -> list[str]:
    """The data of the events of a stream, as far as they came."""
    return [line.removeprefix("data:").strip() for line in text.split("\n") if line.startswith("data:")]


_LAST = ("message_stop", "response.completed", "response.incomplete")
"""The types of events that are the last of a stream, in APIs that have them."""


def read_answer(is_stream: bool, text: str) -> object:
    """Makes what can be compared of a body: without what may vary; a stream as the chunks of each choice.

    Raises ValueError if a stream broke off or ended with an error.
    """
    if not is_stream:
        return steady(json.loads(text))
    lines = completion_lines(text)
    chunks = [chunk for line in lines if line != "[DONE]" and (chunk := json.loads(line)).get("type") != "ping"]
    if errors := [chunk for chunk in chunks if "error" in chunk or chunk.get("type") in ("error", "response.failed")]:
        raise ValueError(f"the stream ended with an error: {errors[0]}")
    if not chunks or not (lines[-1] == "[DONE]" or chunks[-1].get("details") or chunks[-1].get("type") in _LAST):
        raise ValueError(f"the stream broke off after {len(chunks)} events")
    choices: dict[int, list[object]] = {}
    for chunk in chunks:
        for choice in chunk.get("choices", [chunk]):
            choices.setdefault(choice.get("index", 0) if "choices" in chunk else 0, []).append(steady(choice))
    return choices


def steady(value: Any) -> Any:
    """Returns a part of an answer without what may vary."""
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items() if key not in VARIABLE}
    return [steady(item) for item in value] if isinstance(value, list) else value


def _native(rng: random.Random, num_lines: int = 10, **parameters: Any) -> tuple[str, dict[str, Any]]:
    path = rng.choice(["/generate", "/generate_stream"])
    return path, {"inputs": source(rng, rng.randint(1, num_lines)), "parameters": {
        "max_new_tokens": rng.randint(20, 80), "details": True, **parameters}}


def _completion(rng: random.Random, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/completions", {"prompt": source(rng, rng.randint(1, 10)), "max_tokens": rng.randint(20, 80),
                               "stream": rng.random() < 0.5, **fields}


def _chat(rng: random.Random, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/chat/completions", {
        "messages": [{"role": "user", "content": source(rng, rng.randint(1, 6))}], "max_tokens": rng.randint(30, 90),
        "stream": rng.random() < 0.5, **fields}


def _message(rng: random.Random) -> tuple[str, dict[str, Any]]:
    tools = [{"name": each["function"]["name"], "input_schema": each["function"]["parameters"]} for each in TOOLS]
    return "/v1/messages", {
        "model": "tgi", "messages": [{"role": "user", "content": source(rng, rng.randint(1, 6))}],
        "max_tokens": rng.randint(30, 90), "temperature": 0, "stream": rng.random() < 0.5, "tools": tools,
        "tool_choice": {"type": rng.choice(["auto", "any"])}}


def _response(rng: random.Random) -> tuple[str, dict[str, Any]]:
    tools = [{"type": "function", **each["function"]} for each in TOOLS]
    return "/v1/responses", {
        "input": source(rng, rng.randint(1, 6)), "max_output_tokens": rng.randint(30, 90), "temperature": 0,
        "stream": rng.random() < 0.5, "tools": tools, "tool_choice": rng.choice(["auto", "required"])}


def _long(rng: random.Random) -> tuple[str, dict[str, Any]]:
    return "/generate_stream", {"inputs": source(rng, rng.randint(60, 120)), "parameters": {
        "max_new_tokens": rng.randint(60, 150), "details": True, "repetition_penalty": 1.1}}


def _best_of(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Such a request may have no seed, so it draws from one token only."""
    return "/generate", {"inputs": source(rng, rng.randint(1, 10)), "parameters": {
        "max_new_tokens": rng.randint(20, 60), "details": True, "best_of": 2, "do_sample": True, "top_k": 1}}


def _sampled(rng: random.Random) -> dict[str, Any]:
    return {"seed": rng.getrandbits(63), "temperature": rng.uniform(0.6, 1.1)}


_KINDS: dict[str, Callable[[random.Random], tuple[str, dict[str, Any]]]] = {
    "greedy": lambda rng: _native(rng, top_n_tokens=2),
    "sampled": lambda rng: _native(rng, do_sample=True, top_p=0.9, typical_p=0.95, min_p=0.01, watermark=True,
                                   **_sampled(rng)),
    "long prompt": _long,
    "best_of": _best_of,
    "n = 3": lambda rng: _completion(rng, n=3, logprobs=2, **_sampled(rng)),
    "regex": lambda rng: _native(rng, grammar={"type": "regex", "value": "[a-z]{3,9}(_[a-z]{2,9}){2,6}"}),
    "grammar": lambda rng: _chat(rng, response_format={
        "type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}, **_sampled(rng)),
    "tools": lambda rng: _chat(rng, tools=TOOLS, tool_choice=rng.choice(["auto", "required"]), max_tokens=150,
                               **_sampled(rng)),
    "penalties": lambda rng: _completion(
        rng, presence_penalty=0.5, frequency_penalty=0.3, repetition_penalty=1.1,
        logit_bias={str(rng.randrange(300, 900)): 2.0}, min_tokens=10, **_sampled(rng)),
    "messages": _message,
    "responses": _response,
    "logprobs": lambda rng: _completion(rng, echo=True, logprobs=1, temperature=0),
    "stop strings": lambda rng: _chat(rng, n=2, stop=["return", "\n\n"], logprobs=True, top_logprobs=2,
                                      **_sampled(rng)),
}
KINDS = tuple(_KINDS)
