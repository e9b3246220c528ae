"""Pydantic AI: an agent with a tool, with schemas by a tool and by the answer's form, and thoughts, by three APIs."""

import asyncio
import sys

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, NativeOutput, ThinkingPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from rome import City, weather


async def drive(model: Model) -> None:
    agent = Agent(model, instructions="You are brief.", tools=[weather], model_settings={"max_tokens": 200})
    found = await agent.run("How is it in Rome?")
    assert found.output == "It is warm in Rome.", found.output
    assert found.usage.requests == 2
    assert found.usage.cache_read_tokens > 0, found.usage
    async with agent.run_stream("How is it in Rome?") as streamed:
        texts = [text async for text in streamed.stream_text(delta=True, debounce_by=None)]
    assert "".join(texts) == "It is warm in Rome.", texts
    assert len(texts) > 2, texts
    thought = await agent.run("Think about it", message_history=found.all_messages())
    assert thought.output == "It is two.", thought.output
    thoughts = [part.content or "".join((part.provider_details or {})["raw_content"])  # where it is no summary
                for message in thought.new_messages() for part in message.parts if isinstance(part, ThinkingPart)]
    assert [text.strip() for text in thoughts] == ["I add one and one."], thoughts
    by_tool = Agent(model, output_type=City, model_settings={"max_tokens": 200})
    assert (await by_tool.run("Name a place")).output == City(city="Rome", population=3)
    by_form = Agent(model, output_type=NativeOutput(City), model_settings={"max_tokens": 200})
    assert (await by_form.run("Name a city")).output == City(city="Rome", population=3)


async def main(url: str) -> None:
    openai = OpenAIProvider(openai_client=AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0))
    anthropic = AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=url, api_key="unused", max_retries=0))
    for model in (OpenAIChatModel("demo", provider=openai), OpenAIResponsesModel("demo", provider=openai),
                  AnthropicModel("claude-sonnet-4-5", provider=anthropic)):
        try:
            await drive(model)
        except Exception as error:
            error.add_note(f"by {type(model).__name__}")
            raise


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    print("all passed")
