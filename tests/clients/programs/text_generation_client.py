"""The client of Text Generation Inference: all methods, sync and async."""

import asyncio
import json
import sys
import urllib.request

from text_generation import AsyncClient, Client
from text_generation.errors import ValidationError
from text_generation.types import FinishReason, Grammar, GrammarType, Message, Response, StreamResponse, Tool

PROMPT = "import os\n\n\ndef walk(path):\n"
SAMPLED = {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "typical_p": 0.95, "repetition_penalty": 1.1,
           "frequency_penalty": 0.1, "seed": 7, "do_sample": True, "watermark": True, "truncate": 5}
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["count"]}
WEATHER = Tool(type="function", function={
    "name": "get_weather", "description": "The weather of a place", "parameters": {
        "type": "object", "properties": {"place": {"type": "string", "maxLength": 12}}, "required": ["place"],
        "additionalProperties": False}})
MESSAGES = [Message(role="user", content="What does json.dumps do?")]


def check_greedy(answer: Response) -> None:
    details = answer.details
    assert details.finish_reason == FinishReason.Length
    assert details.generated_tokens == len(details.tokens) == 8
    assert details.seed is None
    assert len(details.prefill) > 3
    assert details.prefill[0].logprob is None
    assert all(token.logprob <= 0 for token in details.prefill[1:])
    assert [len(top) for top in details.top_tokens] == [3] * 8
    assert all(top[0].id == token.id for top, token in zip(details.top_tokens, details.tokens, strict=True))
    assert answer.generated_text == "".join(token.text for token in details.tokens)


def check_best_of(answer: Response) -> None:
    others = answer.details.best_of_sequences
    assert len(others) == 1
    mean = sum(token.logprob for token in answer.details.tokens) / len(answer.details.tokens)
    for other in others:
        assert sum(token.logprob for token in other.tokens) / len(other.tokens) <= mean
        assert other.seed != answer.details.seed


def check_several(url: str) -> None:
    """The client has no `n`, and reads what comes of one."""
    body = {"inputs": PROMPT, "parameters": {
        "n": 2, "max_new_tokens": 8, "do_sample": True, "seed": 3, "details": True}}
    request = urllib.request.Request(f"{url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        answer = Response(**json.load(response))
    [other] = answer.details.best_of_sequences
    assert answer.details.seed == other.seed == 3
    assert len(other.tokens) == other.generated_tokens


def check_stream(events: list[StreamResponse], whole: Response) -> None:
    assert [event.token.id for event in events] == [token.id for token in whole.details.tokens]
    assert [event.token.logprob for event in events] == [token.logprob for token in whole.details.tokens]
    assert events[-1].generated_text == whole.generated_text
    assert events[-1].details.finish_reason == whole.details.finish_reason
    assert events[-1].details.seed == whole.details.seed
    assert all(event.generated_text is None and event.details is None for event in events[:-1])


def check_refusal(error: ValidationError) -> None:
    assert "`stop` supports up to 4 stop sequences. Given: 5" in str(error), error


def tokens_of(chunks: object) -> str:
    """The text of a chat's stream. The client takes the `[DONE]` of its end for JSON, so reading ends before it."""
    text = ""
    for chunk in chunks:
        text += chunk.choices[0].delta.content or ""
        if chunk.choices[0].finish_reason:
            return text
    raise AssertionError("no finish_reason")


def sync(url: str) -> None:
    client = Client(url, timeout=60)
    check_greedy(client.generate(PROMPT, max_new_tokens=8, decoder_input_details=True, top_n_tokens=3))
    check_best_of(client.generate(PROMPT, max_new_tokens=8, do_sample=True, best_of=2))
    whole = client.generate(PROMPT, max_new_tokens=12, **SAMPLED)
    assert whole == client.generate(PROMPT, max_new_tokens=12, **SAMPLED)
    check_stream(list(client.generate_stream(PROMPT, max_new_tokens=12, **SAMPLED)), whole)
    stopped = client.generate(PROMPT, max_new_tokens=60, stop_sequences=["\n"], return_full_text=True)
    assert stopped.generated_text.startswith(PROMPT)
    assert stopped.details.finish_reason == FinishReason.StopSequence
    counted = client.generate(PROMPT, max_new_tokens=40, grammar=Grammar(type=GrammarType.Json, value=SCHEMA))
    assert 0 <= json.loads(counted.generated_text)["count"] <= 99
    assert counted.details.finish_reason == FinishReason.EndOfSequenceToken
    digits = client.generate(PROMPT, max_new_tokens=40, grammar=Grammar(type=GrammarType.Regex, value="[0-9]{3}"))
    assert len(digits.generated_text) == 3
    assert digits.generated_text.isdecimal()
    try:
        client.generate(PROMPT, stop_sequences=list("abcde"))
    except ValidationError as error:
        check_refusal(error)
    else:
        raise AssertionError("five stop strings were taken")
    try:
        list(client.generate_stream(PROMPT, stop_sequences=list("abcde")))
    except ValidationError as error:
        check_refusal(error)
    else:
        raise AssertionError("five stop strings were taken by a stream")


def sync_chat(url: str) -> None:
    client = Client(url, timeout=60)
    answer = client.chat(MESSAGES, max_tokens=16, seed=3, temperature=0.7, logprobs=True, top_logprobs=2)
    assert answer.choices[0].message.role == "assistant"
    assert len(answer.choices[0].logprobs["content"][0]["top_logprobs"]) == 2
    assert answer.usage["completion_tokens"] <= 16
    streamed = client.chat(MESSAGES, max_tokens=16, seed=3, temperature=0.7, stream=True)
    assert tokens_of(streamed) == answer.choices[0].message.content
    called = client.chat(MESSAGES, max_tokens=100, tools=[WEATHER], tool_choice="get_weather", seed=1)
    call = called.choices[0].message.tool_calls[0]
    assert call["function"]["name"] == "get_weather"
    assert set(json.loads(call["function"]["arguments"])) == {"place"}


async def asynchronous(url: str) -> None:
    client = AsyncClient(url, timeout=60)
    check_greedy(await client.generate(PROMPT, max_new_tokens=8, decoder_input_details=True, top_n_tokens=3))
    check_best_of(await client.generate(PROMPT, max_new_tokens=8, do_sample=True, best_of=2))
    whole = await client.generate(PROMPT, max_new_tokens=12, **SAMPLED)
    check_stream([event async for event in client.generate_stream(PROMPT, max_new_tokens=12, **SAMPLED)], whole)
    try:
        await client.generate(PROMPT, stop_sequences=list("abcde"))
    except ValidationError as error:
        check_refusal(error)
    else:
        raise AssertionError("five stop strings were taken")
    four = await asyncio.gather(*(client.generate(PROMPT, max_new_tokens=10) for _ in range(4)))
    assert [answer.generated_text for answer in four] == [four[0].generated_text] * 4
    answer = await client.chat(MESSAGES, max_tokens=16, seed=3)
    text = ""
    async for chunk in await client.chat(MESSAGES, max_tokens=16, seed=3, stream=True):
        text += chunk.choices[0].delta.content or ""
        if chunk.choices[0].finish_reason:
            break
    assert text == answer.choices[0].message.content


if __name__ == "__main__":
    sync(sys.argv[1])
    check_several(sys.argv[1])
    sync_chat(sys.argv[1])
    asyncio.run(asynchronous(sys.argv[1]))
    print("all passed")
