"""What tests of chats share: tools, how to ask, and how to read a stream."""

import json
from typing import Any

from tests.router.api.conftest import Server

TEXT = "Hello wörld, 😀 is all."
HELLO = [{"role": "user", "content": "Hello"}]
PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
TIME = {"type": "function", "function": {"name": "time"}}


def refusal(message: str, param: str | None, code: str = "invalid_value", kind: str = "invalid_request_error"
            ) -> dict[str, Any]:
    """The body of an answer that refuses a request in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


async def chat(server: Server, **fields: object) -> dict[str, Any]:
    response = await server.post("/v1/chat/completions", {"messages": HELLO, **fields})
    assert response.status == 200, await response.text()
    answer: dict[str, Any] = await response.json()
    return answer


async def chunks(server: Server, **fields: object) -> list[dict[str, Any]]:
    """Of a stream that ends as it should."""
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "stream": True, **fields})
    assert (response.status, response.content_type) == (200, "text/event-stream"), await response.text()
    frames = (await response.text()).split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all(frame.startswith("data: {") for frame in frames[:-2])
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def joined(streamed: list[dict[str, Any]], index: int = 0) -> tuple[str, list[dict[str, Any]], list[str]]:
    """The content, the calls and the finish reasons of one choice."""
    content, calls, reasons = "", [], []
    for choice in (choice for chunk in streamed for choice in chunk["choices"] if choice["index"] == index):
        content += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls") or ():
            if call["index"] == len(calls):
                assert call["function"]["arguments"] == ""
                calls.append(call)
            else:
                assert call.keys() == {"index", "function"}
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        if choice["finish_reason"] is not None:
            reasons.append(choice["finish_reason"])
    return content, calls, reasons


async def rendered(server: Server, **fields: object) -> str:
    """The prompt that a conversation makes."""
    response = await server.post("/chat_tokenize", {"messages": HELLO, **fields})
    assert response.status == 200, await response.text()
    text: str = (await response.json())["templated_text"]
    return text
