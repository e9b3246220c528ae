"""OpenAI's client: completions, chat, streams, tools, parse."""

import asyncio
import json
import sys

import openai
import pydantic

MESSAGES = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "What does len do?"}]
PROMPT = "import os\n\n\ndef walk(path):\n"


class Weather(pydantic.BaseModel):
    """The weather of a place."""

    place: str = pydantic.Field(max_length=12)
    days: int = pydantic.Field(ge=1, le=9)


class Opinion(pydantic.BaseModel):
    mark: int = pydantic.Field(ge=0, le=10)
    is_sure: bool


TOOLS = [openai.pydantic_function_tool(Weather, name="get_weather")]


def completions(client: openai.OpenAI) -> None:
    model = client.models.list().data[0].id
    answer = client.completions.create(model=model, prompt=[PROMPT, "def open(path):"], max_tokens=6, n=2, seed=4,
                                       temperature=0.9, logprobs=2, echo=True, stop=["@@"])
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text.startswith(PROMPT) for choice in answer.choices] == [True, True, False, False]
    for choice in answer.choices:
        assert "".join(choice.logprobs.tokens) == choice.text
        assert choice.logprobs.token_logprobs[0] is None
        assert all(value <= 0 for value in choice.logprobs.token_logprobs[1:])
        assert len(choice.logprobs.top_logprobs[-1]) >= 2
    texts = [choice.text for choice in answer.choices]
    again = client.completions.create(model=model, prompt=[PROMPT, "def open(path):"], max_tokens=6, n=2, seed=4,
                                      temperature=0.9, echo=True, stop="@@", stream=True,
                                      stream_options={"include_usage": True})
    streamed = [""] * 4
    for chunk in again:
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
        usage = chunk.usage
    assert streamed == texts
    assert usage.completion_tokens == answer.usage.completion_tokens
    told = ""
    try:
        client.completions.create(model=model, prompt=PROMPT, suffix="x")
    except openai.BadRequestError as error:
        told = f"{error} {error.code} {error.param}"
    assert "Suffix is not supported" in told
    assert "unsupported_parameter suffix" in told
    assert client.models.retrieve(model).id == model


def chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tgi", messages=MESSAGES, max_completion_tokens=10, logprobs=True, top_logprobs=2, temperature=0, top_p=1,
        presence_penalty=0.5, frequency_penalty=-0.5, logit_bias={"11": -100}, user="me")
    content = answer.choices[0].logprobs.content
    assert "".join(token.token for token in content).startswith(answer.choices[0].message.content)
    assert bytes(byte for token in content for byte in token.bytes or []).decode().startswith(
        answer.choices[0].message.content)
    with client.chat.completions.stream(
        model="tgi", messages=MESSAGES, max_completion_tokens=10, temperature=0, presence_penalty=0.5,
        frequency_penalty=-0.5, logit_bias={"11": -100}) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == answer.choices[0].message.content
    assert final.choices[0].finish_reason == answer.choices[0].finish_reason


def parse(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(model="tgi", messages=MESSAGES, response_format=Opinion, max_tokens=60,
                                           seed=1)
    assert 0 <= answer.choices[0].message.parsed.mark <= 10
    called = client.chat.completions.parse(
        model="tgi", messages=MESSAGES, tools=TOOLS, tool_choice="required", max_tokens=200,
        parallel_tool_calls=False, temperature=0)
    assert called.choices[0].finish_reason == "tool_calls"
    call, = called.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)
    assert client.chat.completions.create(
        model="tgi", max_tokens=5, tools=TOOLS, tool_choice="none", messages=[
            *MESSAGES,
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]).choices[0].message.content is not None
    with client.chat.completions.stream(
        model="tgi", messages=MESSAGES, tools=TOOLS, tool_choice="required", max_tokens=200,
        parallel_tool_calls=False, temperature=0) as stream:
        streamed = stream.get_final_completion()
    assert json.loads(streamed.choices[0].message.tool_calls[0].function.arguments) == json.loads(
        call.function.arguments)


async def asynchronous(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        chunks = [chunk async for chunk in await client.chat.completions.create(
            model="tgi", messages=MESSAGES, max_tokens=8, n=2, temperature=0.9, stream=True)]
        assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1}
        ends = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
        assert len(ends) == 2


if __name__ == "__main__":
    with openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0) as openai_client:
        completions(openai_client)
        chat(openai_client)
        parse(openai_client)
    asyncio.run(asynchronous(sys.argv[1]))
    print("all passed")
