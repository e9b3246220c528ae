"""OpenAI's Agents SDK: an agent with a tool, whole and streamed, by responses and by chats, and one with a schema."""

import asyncio
import sys

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from rome import City, weather


async def drive(model: OpenAIChatCompletionsModel | OpenAIResponsesModel, reasoning: Reasoning | None = None) -> None:
    settings = ModelSettings(max_tokens=200, reasoning=reasoning)
    agent = Agent(name="Forecaster", instructions="You are brief.", model=model, tools=[function_tool(weather)],
                  model_settings=settings)
    found = await Runner.run(agent, "How is it in Rome?")
    assert found.final_output == "It is warm in Rome.", found.final_output
    kinds = [item.type for item in found.new_items]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"], kinds
    assert [response.usage.input_tokens_details.cached_tokens > 0 for response in found.raw_responses][1]
    streamed = Runner.run_streamed(agent, "How is it in Rome?")
    text = ""
    async for event in streamed.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    assert (streamed.final_output, text) == ("It is warm in Rome.", "It is warm in Rome."), text
    again = await Runner.run(agent, [*found.to_input_list(), {"role": "user", "content": "Think about it"}])
    assert again.final_output == "It is two.", again.final_output
    thoughts = [item for item in again.new_items if item.type == "reasoning_item"]
    assert len(thoughts) == 1, again.new_items
    namer = Agent(name="Namer", instructions="You name cities.", model=model, output_type=City,
                  model_settings=ModelSettings(max_tokens=200))
    named = await Runner.run(namer, "Name a city")
    assert named.final_output == City(city="Rome", population=3), named.final_output


async def main(url: str) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    await drive(OpenAIResponsesModel(model="demo", openai_client=client), Reasoning(effort="low", summary="auto"))
    await drive(OpenAIChatCompletionsModel(model="demo", openai_client=client))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    print("all passed")
