"""The requests whose answers are recorded, of every kind that the server takes, by their names in the file.

Whatever draws has a seed, so that its answer depends on nothing else.
"""

from typing import Any

Body = dict[str, Any]

SOURCE = "import os\n\n\ndef walk(path):\n"
DEF = "def open(path):"
CLASS = "class Path:\n    "
STORY = "Once upon a time there was a small"
SIGNS = "# Größe in Wörtern: 日本語 🙂\n"
LONG = "\n".join(f"def read_{name}({name}, size={number}):\n    return open({name}).read(size)[{number}:]\n"
                 for number in range(1, 41) for name in (f"file{number % 7}",))
"""Some 1,100 tokens, the prompt of several steps."""

SAMPLED: Body = {"do_sample": True, "temperature": 0.8}
SCHEMA: Body = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2, "maxLength": 12},
                   "age": {"type": "integer", "minimum": 10, "maximum": 99},
                   "kind": {"enum": ["file", "folder", None]},
                   "marks": {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 5}, "maxItems": 3}},
    "required": ["name", "age", "kind", "marks"], "additionalProperties": False}
QUESTION: list[Body] = [{"role": "user", "content": "What does json.dumps do?"}]
TALK: list[Body] = [
    {"role": "system", "content": "You write short Python functions."},
    {"role": "user", "content": [{"type": "text", "text": "Sort a list "}, {"type": "text", "text": "by size."}]},
    {"role": "assistant", "content": "def by_size(items):\n    return sorted(items, key=len)"},
    {"role": "user", "content": "And backwards?"}]
WEATHER: Body = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.", "parameters": {
        "type": "object", "required": ["city", "days"], "additionalProperties": False, "properties": {
            "city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}}
CLOCK: Body = {"type": "function", "function": {
    "name": "clock", "parameters": {
        "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]}}}
CALLED: list[Body] = [
    {"role": "user", "content": "How late is it?"},
    {"role": "assistant", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}]},
    {"role": "tool", "content": "12:30", "tool_call_id": "call_1"}]

Ask = tuple[str, Body]
"""A route and the body to send there."""


def native(inputs: str, **parameters: Any) -> Ask:
    """Ask TGI's own route, for details unless told otherwise."""
    return "/generate", {"inputs": inputs, "parameters": {"max_new_tokens": 16, "details": True, **parameters}}


def streamed(inputs: str, **parameters: Any) -> Ask:
    """Ask the same for an event a token."""
    return "/generate_stream", native(inputs, **parameters)[1]


def completion(prompt: Any, **fields: Any) -> Ask:
    return "/v1/completions", {"model": "demo", "prompt": prompt, "max_tokens": 16, "temperature": 0, **fields}


def chat(messages: list[Body], **fields: Any) -> Ask:
    return "/v1/chat/completions", {"model": "demo", "messages": messages, "max_tokens": 16, "temperature": 0, **fields}


def grammar(kind: str, value: Any, **parameters: Any) -> Ask:
    """Ask for a sampled answer of some form, in TGI's way."""
    return native(CLASS, grammar={"type": kind, "value": value}, max_new_tokens=80, do_sample=True, **parameters)


GREEDY: dict[str, Ask] = {
    "greedy": native(SOURCE, max_new_tokens=24),
    "greedy, streamed": streamed(CLASS, max_new_tokens=24),
    "prompt and likeliest tokens": native(DEF, decoder_input_details=True, top_n_tokens=3),
    "prompt of several steps": native(LONG, top_n_tokens=1),
    "logprobs of a prompt of other alphabets": native(SIGNS, decoder_input_details=True, max_new_tokens=4),
    "long": native(CLASS, max_new_tokens=300, ignore_eos=True, repetition_penalty=1.2, details=False),
    "logprobs of a prompt of several steps": native(LONG, truncate=300, decoder_input_details=True, max_new_tokens=2),
    "truncated prompt with its text": native(SIGNS, truncate=9, return_full_text=True, max_new_tokens=8),
    "best of the greedy": native(DEF, best_of=2, temperature=1.0, max_new_tokens=6),
}
DRAWN: dict[str, Ask] = {
    "temperature": native(SOURCE, **SAMPLED, seed=1),
    "plain sampling": native(STORY, do_sample=True, seed=2**64 - 1),
    "hot": native(STORY, temperature=2.5, seed=2, top_n_tokens=2),
    "top_k": native(DEF, **SAMPLED, seed=3, top_k=8, top_n_tokens=3),
    "top_p": native(DEF, **SAMPLED, seed=4, top_p=0.7),
    "typical_p": native(DEF, **SAMPLED, seed=5, typical_p=0.8),
    "min_p": native(DEF, **SAMPLED, seed=6, min_p=0.05),
    "all warpers, streamed": streamed(
        SIGNS, **SAMPLED, seed=7, top_k=40, top_p=0.9, typical_p=0.95, min_p=0.01, repetition_penalty=1.1,
        top_n_tokens=2),
    "long and drawn": native(SOURCE, max_new_tokens=300, ignore_eos=True, details=False, seed=8, **SAMPLED, top_p=0.95),
    "drawn after a prompt of several steps": streamed(LONG, **SAMPLED, seed=9, watermark=True),
    "watermark": native(CLASS, watermark=True),
    "watermark, drawn": native(CLASS, watermark=True, **SAMPLED, seed=10),
}
STEERED: dict[str, Ask] = {
    "repetition penalty": native(SIGNS, repetition_penalty=1.5),
    "TGI's frequency penalty": native(SIGNS, frequency_penalty=2),
    "all penalties, drawn": native(
        STORY, repetition_penalty=1.3, frequency_penalty=-0.5, presence_penalty=0.7, **SAMPLED, seed=11),
    "OpenAI's penalties": completion(SIGNS, frequency_penalty=1.1, presence_penalty=0.6, logprobs=1),
    "bias": native(DEF, logit_bias={"300": 8.5, "279": -100, "512": 2.25}),
    "end tokens, not too early": native(DEF, stop_token_ids=[290, 16], min_tokens=6),
    "end of the text, not too early": native("Return the largest", min_tokens=8, max_new_tokens=24),
    "stop string": native(DEF, stop=["rn the", "never"], max_new_tokens=24),
    "stop string, streamed": streamed(DEF, stop=["the", "zzz"], max_new_tokens=24),
    "stop string of OpenAI's": completion(DEF, stop="urn th", stream=True, logprobs=0, max_tokens=24),
}
GRAMMARS: dict[str, Ask] = {
    "schema": grammar("json", SCHEMA, seed=12),
    "regular expression": grammar("regex", "[A-Z][a-z]{3,9} (ä|ö|日本|🙂){2,4} [0-9]{2}", seed=13, top_n_tokens=2),
    "choice": grammar("choice", ["red", "green", "blue-green", "black"], seed=14),
    "type and watermark": grammar("type", "date-time", seed=15, watermark=True),
    "schema, streamed": streamed(DEF, grammar={"type": "json", "value": SCHEMA}, max_new_tokens=60),
    "response format": chat(
        QUESTION, max_tokens=80, seed=16, temperature=1, logprobs=True,
        response_format={"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA}}),
    "response format of a completion": completion(
        STORY, response_format={"type": "json_object"}, max_tokens=24, return_token_ids=True),
    "guided choice": completion(STORY, guided_choice=["yes", "no", "maybe"], logprobs=2),
    "guided grammar": chat(QUESTION, guided_grammar='start: "a"+ ("b" | "c"){3} /[0-9]{2}/', max_tokens=20, seed=17,
                           temperature=1.2, return_token_ids=True),
}
COMPLETIONS: dict[str, Ask] = {
    "completion": completion(STORY, logprobs=3, return_token_ids=True),
    "echo with logprobs": completion(DEF, echo=True, logprobs=2, max_tokens=6),
    "prompt alone": completion([5, 759, 84, 130, 117, 130, 256, 71], echo=True, logprobs=1, max_tokens=0),
    "several completions": completion(SOURCE, n=2, temperature=1.1, seed=18, logprobs=1),
    "several completions, streamed": completion(
        DEF, n=2, temperature=0.9, top_k=50, seed=19, echo=True, logprobs=0, max_tokens=8, stream=True,
        stream_options={"include_usage": True}),
    "several prompts": completion([DEF, SIGNS, "x"], typical_p=0.9, temperature=0.7, seed=20, max_tokens=10),
    "best of some": completion(SOURCE, best_of=3, temperature=1.2, min_p=0.02, seed=21, logprobs=0),
    "completion, streamed": completion(CLASS, stream=True, return_token_ids=True, max_tokens=10),
}
CHATS: dict[str, Ask] = {
    "chat": chat(QUESTION, logprobs=True, top_logprobs=2),
    "chat of several turns": chat(TALK, temperature=0.7, top_p=0.9, seed=22, max_tokens=40),
    "several chats, streamed": chat(
        QUESTION, n=2, temperature=1, seed=23, logprobs=True, top_logprobs=1, stream=True, max_tokens=6,
        stream_options={"include_usage": True, "continuous_usage_stats": True}),
    "chat of TGI's clients, streamed": chat(TALK, model="tgi", stream=True, max_tokens=8),
    "continued chat": chat([*QUESTION, {"role": "assistant", "content": "It writes"}], watermark=True, seed=24),
    "tools": chat(QUESTION, tools=[WEATHER, CLOCK], tool_choice="required", max_tokens=90, temperature=1, seed=25),
    "tools, streamed": chat(QUESTION, tools=[WEATHER, CLOCK], tool_choice="weather", max_tokens=90, temperature=1,
                            seed=26, stream=True),
    "tools that need not be called": chat(CALLED, tools=[CLOCK], logprobs=True, max_tokens=12),
}
OTHERS: dict[str, Ask] = {
    "TGI's compatible route": ("/", {"inputs": STORY, "parameters": {"max_new_tokens": 12, "details": True}}),
    "SageMaker": ("/invocations", {
        "inputs": DEF, "parameters": {"max_new_tokens": 6, "details": True}, "stream": True}),
    "Vertex AI": ("/vertex", {"instances": [
        {"inputs": SOURCE, "parameters": {"max_new_tokens": 20}}, {"messages": TALK, "max_tokens": 20, "seed": 27}]}),
    "tokens of a text": ("/tokenize", {"inputs": SIGNS}),
    "tokens of a chat": ("/chat_tokenize", {"messages": TALK}),
}
ASKS: dict[str, Ask] = {**GREEDY, **DRAWN, **STEERED, **GRAMMARS, **COMPLETIONS, **CHATS, **OTHERS}
