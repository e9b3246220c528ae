"""For each field of a body, two bodies that differ in it alone: a server that treats them alike ignores the field."""

from typing import Any

from tests.router.api.conftest import ANSWER

Body = dict[str, Any]

GRAMMAR = {"type": "regex", "value": "(.|\n)*"}
WEATHER = {"type": "function", "function": {
    "name": "weather", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}
TIME = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}
PART = {"type": "text", "text": "Say it"}
MESSAGE = {"role": "user", "content": "Say it"}
OTHER = {"role": "user", "content": "Tell it"}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
SAMPLED = {"do_sample": True, "seed": 1, "max_new_tokens": 20, "details": True}

BODIES: dict[str, Body] = {
    "/": {"inputs": "Say it"},
    "/generate": {"inputs": "Say it", "parameters": SAMPLED},
    "/generate_stream": {"inputs": "Say it", "parameters": SAMPLED},
    "/v1/chat/completions": {"messages": [MESSAGE], "seed": 1, "max_tokens": 20},
    "/v1/completions": {"prompt": "Say it", "seed": 1, "max_tokens": 20},
    "/invocations": {"inputs": "Say it"},
    "/vertex": {"instances": [{"inputs": "Say it"}]},
    "/tokenize": {"inputs": "Say it"},
    "/chat_tokenize": {"messages": [MESSAGE]},
}
"""A body that each route takes."""
TENSORS: Body = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["Say it"]}]}
"""The body that KServe's route takes."""

_BESIDE: dict[str, Body] = {
    "best_of": {"seed": None}, "do_sample": {"do_sample": False, "seed": None}, "details": {"details": False},
    "image_url": {"type": "image_url"}, "top_logprobs": {"logprobs": True}, "stream_options": {"stream": True},
    "tool_choice": {"tools": [WEATHER]}, "tool_prompt": {"tools": [WEATHER]}, "max_completion_tokens": {
        "max_tokens": None},
}
"""What both bodies have beside the field, where it has no effect without."""
_VALUES: Body = {
    "inputs": "Tell it", "prompt": "Tell it", "messages": [OTHER], "instances": [{"inputs": "Say"}], "role": "system",
    "content": "Tell it", "text": "Tell it", "function": TIME["function"], "type": "a type that nobody knows",
    "parameters": {"max_new_tokens": 5}, "stream": True, "temperature": 0.5, "repetition_penalty": 1.1,
    "frequency_penalty": 0.5, "presence_penalty": 0.5, "top_k": 5, "top_p": 0.5, "typical_p": 0.5, "do_sample": True,
    "max_new_tokens": 5, "return_full_text": True, "stop": [ANSWER[:5]], "truncate": 1, "watermark": True,
    "details": True, "decoder_input_details": True, "seed": 2, "top_n_tokens": 2, "grammar": GRAMMAR,
    "adapter_id": "a", "model": "any", "logit_bias": {"5": 1.0}, "logprobs": True, "max_tokens": 5,
    "max_completion_tokens": 5, "n": 2, "tools": [WEATHER], "response_format": GRAMMAR, "suffix": "b",
    "name": "Ann", "tool_call_id": "1", "tool_calls": [CALL], "image_url": {"url": "data:,"}, "best_of": 2,
    "top_logprobs": 2, "stream_options": {"include_usage": True}, "tool_choice": "none", "tool_prompt": "Or",
}


def bodies(path: str, outer: str, name: str) -> tuple[Body, Body]:
    """Returns a body for the route at `path` without the field `name`, or with its usual value, and one that uses it.

    The field is part of the field `outer`, if there is one. KeyError if no value of such a field is known here.
    """
    parts = {"": BODIES[path], "messages": MESSAGE, "messages.content": PART, "tools": WEATHER}
    fields = {**parts.get(outer, BODIES[path].get(outer, {})), **_BESIDE.get(name, {})}
    fields = {key: value for key, value in fields.items() if value is not None}
    used = {**fields, name: _VALUES[name]}
    if name == "type":
        fields, used = used, fields  # it has one value, and that it is read is seen by any other
    return _around(path, outer, fields), _around(path, outer, used)


def _around(path: str, outer: str, fields: Body) -> Body:
    """Returns the whole body whose part `outer` has these fields."""
    if not outer:
        return fields
    if outer == "messages.content":
        return {**BODIES[path], "messages": [{**MESSAGE, "content": [fields]}]}
    return {**BODIES[path], outer: [fields] if outer in ("messages", "tools") else fields}
