"""Hugging Face's current client: text generation and chat, sync and async."""

import asyncio
import json
import sys
import urllib.request
from collections.abc import Callable

from huggingface_hub import AsyncInferenceClient, InferenceClient, TextGenerationOutput
from huggingface_hub.errors import ValidationError

PROMPT = "import os\n\n\ndef walk(path):\n"
MESSAGES = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "What does len do?"}]
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["count"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place", "parameters": {
        "type": "object", "properties": {"place": {"type": "string", "maxLength": 12}}, "required": ["place"],
        "additionalProperties": False}}}]


def refused(call: Callable[[], object]) -> str:
    """What the server says against the call."""
    try:
        call()
    except ValidationError as error:
        return str(error)
    raise AssertionError("it was not refused")


def text_generation(client: InferenceClient) -> None:
    assert client.text_generation(PROMPT, max_new_tokens=8)
    answer = client.text_generation(PROMPT, max_new_tokens=8, details=True, decoder_input_details=True, top_n_tokens=2,
                                    do_sample=True, seed=5, temperature=0.7, typical_p=0.9, watermark=True)
    assert answer.details.generated_tokens == len(answer.details.tokens) == len(answer.details.top_tokens) == 8
    assert len(answer.details.prefill) > 3
    assert answer.details.seed == 5
    events = list(client.text_generation(PROMPT, max_new_tokens=8, details=True, stream=True, top_n_tokens=2))
    assert [event.index for event in events] == list(range(1, 9))
    assert events[-1].details.finish_reason == "length"
    assert events[-1].details.input_length > 3
    assert [len(event.top_tokens) for event in events] == [2] * 8
    pieces = list(client.text_generation(PROMPT, max_new_tokens=8, stream=True))
    assert PROMPT + "".join(pieces) == events[-1].generated_text
    best = client.text_generation(PROMPT, max_new_tokens=4, details=True, best_of=2, do_sample=True)
    assert len(best.details.best_of_sequences) == 1
    counted = client.text_generation(PROMPT, max_new_tokens=40, return_full_text=False,
                                     grammar={"type": "json", "value": SCHEMA})
    assert 0 <= json.loads(counted)["count"] <= 99
    refusal = refused(lambda: client.text_generation(PROMPT, top_p=7.0))
    assert "`top_p` must be > 0.0 and < 1.0" in refusal, refusal


def several(url: str) -> None:
    """The client has no `n`, and reads what comes of one."""
    body = {"inputs": PROMPT, "parameters": {
        "n": 2, "max_new_tokens": 8, "do_sample": True, "seed": 3, "details": True}}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        [answer] = TextGenerationOutput.parse_obj_as_list(json.load(response))
    [other] = answer.details.best_of_sequences
    assert answer.details.seed == other.seed == 3
    assert len(other.tokens) == other.generated_tokens


def chat(client: InferenceClient) -> None:
    answer = client.chat_completion(MESSAGES, max_tokens=12, seed=1, temperature=0.5, logprobs=True, top_logprobs=3,
                                    presence_penalty=0.1, frequency_penalty=0.1, logit_bias={"5": -100}, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.model == "dummy"
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 3
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    whole = client.chat_completion(MESSAGES, max_tokens=12, temperature=0).choices[0]
    chunks = list(client.chat_completion(MESSAGES, max_tokens=12, temperature=0, stream=True,
                                         stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == whole.message.content
    assert chunks[-2].choices[0].finish_reason == whole.finish_reason
    assert chunks[-1].usage.completion_tokens <= 12
    assert not chunks[-1].choices


def structured(client: InferenceClient) -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "count", "schema": SCHEMA, "strict": True}}
    answer = client.chat_completion(MESSAGES, max_tokens=60, response_format=shape, seed=1)
    assert 0 <= json.loads(answer.choices[0].message.content)["count"] <= 99
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        answer = client.chat_completion(MESSAGES, max_tokens=120, tools=TOOLS, tool_choice=choice, seed=1)
        call = answer.choices[0].message.tool_calls[0]
        assert call.function.name == "get_weather"
        assert set(json.loads(call.function.arguments)) == {"place"}
        assert answer.choices[0].finish_reason == "tool_calls"
    chunks = client.chat_completion(MESSAGES, max_tokens=120, tools=TOOLS, tool_choice="required", stream=True, seed=1)
    deltas = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert deltas[0].function.name == "get_weather"
    for index in {delta.index for delta in deltas}:
        pieces = [delta.function.arguments or "" for delta in deltas if delta.index == index]
        assert set(json.loads("".join(pieces))) == {"place"}


async def asynchronous(url: str) -> None:
    async with AsyncInferenceClient(url) as client:
        pieces = [piece async for piece in await client.text_generation(PROMPT, max_new_tokens=8, stream=True)]
        assert PROMPT + "".join(pieces) == await client.text_generation(PROMPT, max_new_tokens=8)
        answer = await client.chat_completion(MESSAGES, max_tokens=8)
        assert answer.choices[0].finish_reason in ("stop", "length")


if __name__ == "__main__":
    several(sys.argv[1])
    inference = InferenceClient(sys.argv[1])
    text_generation(inference)
    chat(inference)
    structured(inference)
    asyncio.run(asynchronous(sys.argv[1]))
    print("all passed")
