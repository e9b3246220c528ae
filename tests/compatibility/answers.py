"""Requests whose answers, taken together, have every field that answers and events of TGI have, and every error."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.compatibility.values import BODIES, MESSAGE, WEATHER
from tests.fakes import LIMITS
from tests.router.api.conftest import Server

DETAILS = {"details": True, "decoder_input_details": True, "top_n_tokens": 2, "best_of": 2, "do_sample": True}
_CHAT = {"messages": [MESSAGE], "logprobs": True, "top_logprobs": 2}
_CALLS = {"messages": [MESSAGE], "tools": [WEATHER], "tool_choice": "required"}
CALLING = '{"name": "weather", "parameters": {"place": "Rome"}}<|im_end|>'
"""An answer that calls a tool, in the format of models whose template teaches none."""

WHOLE: dict[str, list[Any]] = {
    "/": [{"inputs": "a", "parameters": DETAILS}],
    "/generate": [{"inputs": "a", "parameters": DETAILS}],
    "/v1/chat/completions": [_CHAT, _CALLS],
    "/v1/completions": [{"prompt": "a", "logprobs": 2}],
    "/vertex": [BODIES["/vertex"]], "/tokenize": [BODIES["/tokenize"]], "/chat_tokenize": [BODIES["/chat_tokenize"]],
    "/info": [None], "/v1/models": [None],
}
STREAMED: dict[str, list[Any]] = {
    "/generate_stream": [{"inputs": "a", "parameters": {"details": True, "top_n_tokens": 2}}, {"inputs": ""}],
    "/v1/chat/completions": [
        {**_CHAT, "stream": True, "stream_options": {"include_usage": True}}, {**_CALLS, "stream": True},
        {**_CHAT, "stream": True, "temperature": -1}],
    "/v1/completions": [{"prompt": "a", "stream": True, "logprobs": 2}, {"prompt": "", "stream": True}],
}
"""By route, the bodies; None is a GET."""

ERRORS: dict[str, tuple[str, Any]] = {
    "overloaded": ("/vertex", {"instances": [{"inputs": "a"}] * (LIMITS.max_concurrent_requests + 1)}),
    "validation": ("/generate", {"inputs": ""}),
    "template_error": ("/v1/chat/completions", {"messages": [MESSAGE], "chat_template": "none of this name"}),
    "tool_error": ("/v1/chat/completions", {"messages": [MESSAGE], "tools": [WEATHER], "tool_choice": "other"}),
    "suffix not supported": ("/v1/completions", {"prompt": "a", "suffix": "b"}),
    "batch size exceeded": ("/v1/completions", {"prompt": ["a"] * (LIMITS.max_client_batch_size + 1)}),
    "Input validation error": ("/vertex", {"instances": []}),
    "generation": ("/generate", {"inputs": "a"}),
    "healthcheck": ("/health", None),
}
"""By error type, a request that meets it; the last two do if the server is `broken`."""


async def answers(servers: Iterable[Server], path: str, table: Mapping[str, list[Any]]) -> list[Any]:
    """Returns what the servers answer to the table's requests for a route, streams event by event."""
    found: list[Any] = []
    for server in servers:
        for body in table.get(path, ()):
            response = await server.client.request("GET" if body is None else "POST", path, json=body)
            text = await response.text()
            lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
            found += map(json.loads, lines or [text])
    return found


def names(found: Iterable[Any], outer: str) -> set[str]:
    """Returns the names of the fields of answers, or of their part `outer`, such as `choices.message`."""
    parts = list(_objects(found))
    for name in outer.split(".") if outer else ():
        parts = list(_objects([part[name] for part in parts if part.get(name) is not None]))
    return {name for part in parts for name in part}


def _objects(values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for value in values:
        if isinstance(value, list):
            yield from _objects(value)
        elif isinstance(value, dict):
            yield value


async def errors(server: Server) -> dict[str, int]:
    """Returns the types of the errors that requests of ERRORS were answered with, and their statuses."""
    found = {}
    for kind, (path, body) in ERRORS.items():
        if kind == "generation":
            server.fleet.failure = ZeroDivisionError("a fault")
        response = await server.client.request("GET" if body is None else "POST", path, json=body)
        found[(await response.json())["error_type"]] = response.status
    return found
