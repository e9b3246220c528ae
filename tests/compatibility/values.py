"""For each field of a body, a body that uses it: what is answered shows whether the field is served."""

from typing import Any

from tests.router.api.conftest import ANSWER

GRAMMAR = {"type": "regex", "value": "(.|\n)*"}
WEATHER = {"type": "function", "function": {
    "name": "weather", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}
PART = {"type": "text", "text": "Say it"}
MESSAGE = {"role": "user", "content": "Say it"}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}

BODIES: dict[str, dict[str, Any]] = {
    "/": {"inputs": "Say it"},
    "/generate": {"inputs": "Say it", "parameters": {"max_new_tokens": 20}},
    "/generate_stream": {"inputs": "Say it", "parameters": {"max_new_tokens": 20}},
    "/v1/chat/completions": {"messages": [MESSAGE]},
    "/v1/completions": {"prompt": "Say it"},
    "/invocations": {"inputs": "Say it"},
    "/vertex": {"instances": [{"inputs": "Say it"}]},
    "/tokenize": {"inputs": "Say it"},
    "/chat_tokenize": {"messages": [MESSAGE]},
}
"""The least that each route takes."""

_WITH: dict[str, dict[str, Any]] = {
    "best_of": {"best_of": 2, "do_sample": True}, "top_logprobs": {"logprobs": True, "top_logprobs": 2},
    "stream_options": {"stream": True, "stream_options": {"include_usage": True}},
    "tool_choice": {"tools": [WEATHER], "tool_choice": "auto"},
    "tool_prompt": {"tools": [WEATHER], "tool_prompt": "Or"},
}
_VALUES: dict[str, Any] = {
    "parameters": {"max_new_tokens": 5}, "stream": True, "temperature": 0.5, "repetition_penalty": 1.1,
    "frequency_penalty": 0.5, "presence_penalty": 0.5, "top_k": 5, "top_p": 0.5, "typical_p": 0.5, "do_sample": True,
    "max_new_tokens": 5, "return_full_text": True, "stop": [ANSWER[:5]], "truncate": 1, "watermark": True,
    "details": True, "decoder_input_details": True, "seed": 1, "top_n_tokens": 2, "grammar": GRAMMAR,
    "adapter_id": "a", "model": "tgi", "logit_bias": {"5": 1.0}, "logprobs": True, "max_tokens": 5,
    "max_completion_tokens": 5, "n": 2, "tools": [WEATHER], "response_format": GRAMMAR, "suffix": "b",
    "name": "Ann", "tool_call_id": "1", "tool_calls": [CALL],
    "image_url": {"url": "data:,"},
}


def body_with(path: str, outer: str, name: str) -> dict[str, Any]:
    """A body for the route at `path` that has the field `name`, in its field `outer` if there is one.

    KeyError if no value of such a field is known here.
    """
    body = BODIES[path]
    parts = {"": body, "messages": MESSAGE, "messages.content": PART, "tools": WEATHER}
    given = parts.get(outer, body.get(outer, {}))
    fields = given if name in given else {**given, **_WITH.get(name, {name: _VALUES.get(name)})}
    if fields.get(name) is None:
        raise KeyError(f"{path} {outer} {name}: tests/compatibility/values.py has no value")
    if not outer:
        return fields
    if outer == "messages.content":
        return {**body, "messages": [{**MESSAGE, "content": [fields]}]}
    return {**body, outer: [fields] if outer in ("messages", "tools") else fields}
