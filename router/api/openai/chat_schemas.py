"""The body of `POST /v1/chat/completions`: fields, types and defaults as TGI and OpenAI take them."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from penstock.router.api.tgi.schemas import OpenAIBody
from penstock.router.generation.parameters import Body, UInt32

MAX_TOOLS = 128
"""OpenAI's limit."""
MAX_ITEMS = 10_000
"""Messages of a body, and the parts and calls in them. Reading them takes 10 to 20 µs each, while all others wait."""


def count_items(messages: object) -> object:
    """`messages` as they came, not read yet; ValueError if they have too many items."""
    if isinstance(messages, list):
        number = len(messages)
        if number <= MAX_ITEMS:
            number += sum(
                len(inner) for message in messages if isinstance(message, dict)
                for inner in (message.get("content"), message.get("tool_calls")) if isinstance(inner, list))
        if number > MAX_ITEMS:
            raise ValueError(f"supports up to {MAX_ITEMS} messages, parts and calls in all. Given: {number}")
    return messages


class Part(Body):
    """Of a message's content. Of a type other than text we take nothing, but know its name."""

    type: str
    text: str | None = None


class CalledFunction(Body):
    """`arguments` is JSON as a string; TGI's clients send an object."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(Body):
    """That an earlier answer asked for. Some clients count their calls."""

    id: str | int | None = None
    type: str | None = None
    function: CalledFunction


class Message(Body):
    """Other fields are the template's."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | Annotated[list[Part], Field(fail_fast=True)] | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None


class Function(Body):
    """TGI's clients may call the parameters `arguments`."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    arguments: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(Body):
    """A function that the model may call."""

    type: Literal["function"] = "function"
    function: Function


class NamedFunction(Body):
    name: str


class NamedTool(Body):
    """The one that must be called."""

    type: Literal["function"] = "function"
    function: NamedFunction


class ChatBody(OpenAIBody):
    """`POST /v1/chat/completions` and `/chat_tokenize`. The second group is TGI's and vLLM's.

    `tool_choice` as a text is `none`, `auto`, `required`, or, as in TGI, the name of a function.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"messages": [{"role": "user", "content": "What does json.dumps do?"}], "max_tokens": 20}]})

    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True), BeforeValidator(count_items)]
    logprobs: bool | None = None
    top_logprobs: UInt32 | None = None
    tools: Annotated[list[ToolBody], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: str | NamedTool | None = None
    parallel_tool_calls: bool | None = None

    tool_prompt: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
