"""LangChain's agent and a graph of LangGraph: a tool, streams, a schema and thoughts, by three APIs."""

import sys
from typing import Any

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from rome import City, weather


def drive_graph(model: BaseChatModel) -> None:
    """A graph of one's own, which keeps the conversation: the second question comes behind all of the first."""
    bound = model.bind_tools([weather])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [bound.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([weather]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    agent, thread = graph.compile(checkpointer=InMemorySaver()), {"configurable": {"thread_id": "a"}}
    question = {"messages": [("user", "How is it in Rome?")]}
    steps = [step for update in agent.stream(question, thread, stream_mode="updates") for step in update]
    assert steps == ["model", "tools", "model"], steps
    messages = agent.invoke({"messages": [("user", "Think about it")]}, thread)["messages"]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai", "human", "ai"], messages
    assert messages[-1].text == "It is two.", messages[-1]


def drive(model: BaseChatModel, **schema: Any) -> None:
    agent = create_agent(model, [weather], system_prompt="You are brief.")
    question = {"messages": [("user", "How is it in Rome?")]}
    messages = agent.invoke(question)["messages"]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"], messages
    assert messages[-1].text == "It is warm in Rome.", messages[-1]
    assert messages[-1].usage_metadata["input_token_details"]["cache_read"] > 0, messages[-1].usage_metadata
    text = "".join(chunk.text for chunk, _ in agent.stream(question, stream_mode="messages") if chunk.type != "tool")
    assert text == "It is warm in Rome.", text
    thought = model.invoke([*messages, ("user", "Think about it")])
    assert thought.text == "It is two.", thought
    named = model.with_structured_output(City, **schema).invoke("Name a city")
    assert named == City(city="Rome", population=3), named
    drive_graph(model)


def main(url: str) -> None:
    openai = {"model": "demo", "base_url": f"{url}/v1", "api_key": "unused", "max_retries": 0, "max_tokens": 200}
    drive(ChatOpenAI(**openai, stream_usage=True))
    drive(ChatOpenAI(**openai, use_responses_api=True))
    anthropic = ChatAnthropic(model="demo", base_url=url, api_key="unused", max_retries=0, max_tokens=200)
    drive(anthropic, method="json_schema")


if __name__ == "__main__":
    main(sys.argv[1])
    print("all passed")
