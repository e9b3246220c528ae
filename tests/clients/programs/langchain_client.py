"""LangChain over OpenAI's routes: invoke, stream, batch, tools, structured output."""

import asyncio
import sys
from typing import Literal

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, Field


class Opinion(BaseModel):
    """What one thinks of something."""

    mark: int = Field(ge=0, le=10)
    kind: Literal["good", "bad"]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def main(url: str) -> None:
    chat = ChatOpenAI(base_url=f"{url}/v1", api_key="unused", model="tgi", temperature=0, max_tokens=40, max_retries=0)
    answer = chat.invoke("What does len do?")
    assert answer.content
    assert answer.usage_metadata["output_tokens"] <= 40
    assert "".join(chunk.content for chunk in chat.stream("What does len do?")) == answer.content
    assert [other.content for other in chat.batch(["What does len do?"] * 3)] == [answer.content] * 3
    opinion = chat.with_structured_output(Opinion, method="json_schema").invoke("Is it good?")
    assert isinstance(opinion, Opinion)
    short = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"]}
    assert 0 <= chat.with_structured_output({"title": "short", **short}).invoke("Go")["a"] <= 99
    called = chat.bind_tools([add], tool_choice="add").invoke("Add 1 and 2", max_tokens=200)
    if called.response_metadata["finish_reason"] == "tool_calls":
        assert called.tool_calls[0]["name"] == "add"
    completion = OpenAI(base_url=f"{url}/v1", api_key="unused", model="tgi", temperature=0, max_tokens=8, max_retries=0)
    text = completion.invoke("import os\n")
    assert "".join(completion.stream("import os\n")) == text
    assert asyncio.run(chat.ainvoke("What does len do?")).content == answer.content


if __name__ == "__main__":
    main(sys.argv[1])
    print("all passed")
