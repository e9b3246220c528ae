"""OpenHands' agent: a tool of one's own, and the effort of thinking that it asks of every model."""

import sys
from collections.abc import Sequence
from typing import Any

from openhands.sdk import LLM, Action, Agent, Conversation, Observation, Tool, ToolDefinition, register_tool
from openhands.sdk.conversation import get_agent_final_response
from openhands.sdk.event import ActionEvent, ObservationEvent
from openhands.sdk.tool import ToolExecutor


class Question(Action):
    city: str


class Weather(Observation):
    pass


class Teller(ToolExecutor[Question, Weather]):
    def __call__(self, action: Question, conversation: Any = None) -> Weather:
        return Weather.from_text(f"22 degrees in {action.city}")


class WeatherTool(ToolDefinition[Question, Weather]):
    name = "weather"

    @classmethod
    def create(cls, *args: Any, **parameters: Any) -> Sequence["WeatherTool"]:
        return [cls(description="Tells the weather of a city.", action_type=Question, observation_type=Weather,
                    executor=Teller())]


def main(url: str) -> None:
    register_tool(WeatherTool.name, WeatherTool)
    model = LLM(model="openai/demo", base_url=url, api_key="unused", num_retries=0)
    assert model.reasoning_effort == "high", model
    conversation = Conversation(Agent(llm=model, tools=[Tool(name=WeatherTool.name)]), workspace=".", visualizer=None)
    conversation.send_message("How is it in Rome?")
    conversation.run()
    events = conversation.state.events
    assert [event.tool_name for event in events if isinstance(event, ActionEvent | ObservationEvent)] == ["weather"] * 2
    assert get_agent_final_response(events) == "It is warm in Rome.", events
    usage = conversation.conversation_stats.get_combined_metrics().accumulated_token_usage
    assert usage.cache_read_tokens > 0.45 * usage.prompt_tokens, usage  # nearly all of the second prompt


if __name__ == "__main__":
    main(sys.argv[1])
    print("all passed")
