"""OpenAI's own client against `/v1/chat/completions`."""


import openai
from pydantic import BaseModel

from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from tests.router.api.conftest import Start
from tests.router.api.openai.chats import HELLO, TEXT
from tests.router.api.sdk import openai_client

CALLS = ('<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
         '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call><|im_end|>')


class City(BaseModel):
    city: str


WEATHER = openai.pydantic_function_tool(City, name="weather")
EXPECTED = [("weather", '{"city": "Rome"}'), ("weather", '{"city": "Oslo"}')]


async def test_chat(start: Start, demo: ChatTemplate) -> None:
    async with openai_client(await start(template=demo)) as client:
        answer = await client.chat.completions.create(
            model="gpt-4", messages=HELLO, n=2, temperature=0.5, stop=["is"], logprobs=True, top_logprobs=1)
        assert answer.model == "gpt-4"
        assert [choice.message.content for choice in answer.choices] == ["Hello wörld, 😀 "] * 2
        assert answer.choices[0].logprobs.content[0].top_logprobs[0].logprob == -0.5
        assert answer.usage.prompt_tokens_details.cached_tokens == 0
        stream = await client.chat.completions.create(
            model="tgi", messages=HELLO, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        assert "".join(choice.delta.content for chunk in chunks for choice in chunk.choices) == TEXT
        assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_tools(start: Start, hermes: ChatTemplate) -> None:
    async with openai_client(await start(answer=CALLS, template=hermes)) as client:
        whole = await client.chat.completions.create(model="tgi", messages=HELLO, tools=[WEATHER])
        calls = whole.choices[0].message.tool_calls
        assert [(call.function.name, call.function.arguments) for call in calls] == EXPECTED
        async with client.chat.completions.stream(model="any", messages=HELLO, tools=[WEATHER]) as stream:
            async for _ in stream:
                pass
            final = (await stream.get_final_completion()).choices[0]
        assert (final.finish_reason, final.message.role) == ("tool_calls", "assistant")
        assert [(call.function.name, call.function.arguments) for call in final.message.tool_calls] == EXPECTED
        assert [call.function.parsed_arguments for call in final.message.tool_calls] == [
            City(city="Rome"), City(city="Oslo")]
        messages = [*HELLO, whole.choices[0].message,
                    *({"role": "tool", "tool_call_id": call.id, "content": "Sunny"} for call in calls)]
        again = await client.chat.completions.create(model="tgi", messages=messages)
        assert again.choices[0].finish_reason == "stop"


async def test_parse(start: Start, demo: ChatTemplate, grammars: GrammarCompiler) -> None:
    server = await start(answer='{"city":"Rome"}<|im_end|>', template=demo, grammars=grammars)
    async with openai_client(server) as client:
        answer = await client.chat.completions.parse(model="tgi", messages=HELLO, response_format=City)
        assert answer.choices[0].message.parsed == City(city="Rome")
        async with client.chat.completions.stream(model="any", messages=HELLO, response_format=City) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.parsed == City(city="Rome")
    assert server.fleet.masks
