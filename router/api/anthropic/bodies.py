"""Bodies of Anthropic's routes: fields, types and bounds. What a block must have depends on its type, and is checked
where it is read."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag

from penstock.router.chat.messages import MAX_ITEMS
from penstock.router.generation.parameters import Float32, Int32, UInt32
from penstock.router.shapes import Body

MAX_TOOLS = 512
"""The most tools of a body, of which agents with servers of tools have many."""


def _count_items(messages: object) -> object:
    """Returns the unread `messages` unchanged; ValueError if they have too many messages and blocks."""
    if isinstance(messages, list):
        number = len(messages)
        if number <= MAX_ITEMS:
            number += sum(map(len, _lists(messages)))
        if number > MAX_ITEMS:
            raise ValueError(f"supports up to {MAX_ITEMS} messages and blocks in all. Given: {number}")
    return messages


def _count_blocks(content: object) -> object:
    """Returns the unread `content` unchanged; ValueError if it has too many blocks."""
    if isinstance(content, list) and len(content) > MAX_ITEMS:
        raise ValueError(f"supports up to {MAX_ITEMS} blocks. Given: {len(content)}")
    return content


def _lists(messages: list[Any]) -> Iterator[list[Any]]:
    """Yields the lists of blocks in messages, and those of parts in the results of tools among these blocks."""
    for content in _contents(messages):
        yield content
        yield from _contents(content)


def _contents(items: list[Any]) -> list[list[Any]]:
    contents = [item.get("content") for item in items if isinstance(item, dict)]
    return [content for content in contents if isinstance(content, list)]


def _form(content: object) -> str:
    """Returns in which of its two forms a content is, so that an error tells of the form that was meant."""
    return "listed" if isinstance(content, list) else "written"


_Form = Discriminator(_form)
_Written = Annotated[str, Tag("written")]


class Part(Body):
    """A part of a tool's result."""

    type: str
    text: str | None = None
    tool_name: str | None = None


class Block(Part):
    """A part of a content. Which of the fields it has follows from its `type`; `cache_control` may stand in any, for
    the cache keeps all that is computed."""

    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: Annotated[_Written | Annotated[list[Part], Field(fail_fast=True), Tag("listed")], _Form] | None = None
    is_error: bool | None = None


Blocks = Annotated[list[Block], Field(fail_fast=True), Tag("listed")]
Content = Annotated[_Written | Blocks, _Form]


class Message(Body):
    """A message of a conversation; one of the system may come amid it."""

    role: Literal["user", "assistant", "system"]
    content: Content


class Tool(Body):
    """A function that the model may call, if it is of the type `custom`, as it is without one. The others run on
    Anthropic's servers, or are known to its models alone, and are skipped. One that `defer_loading` is told of once a
    tool's result refers to it."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class ToolChoice(Body):
    """Says whether the answer may or must call tools, or the tool of this `name`, and whether more than one."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    """Says whether the model thinks before it answers, for how many tokens at the most, and whether its thoughts are
    shown or only carried in the block's signature."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[UInt32, Field(ge=1)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class Format(Body):
    """The form of the answer's text."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Body):
    """The form of the answer, and how much the model shall think of it."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: Format | None = None


class CountBody(Body):
    """The body of `POST /v1/messages/count_tokens`. Fields that are not named here are kept, for some are refused by
    name."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [
        {"model": "tgi", "messages": [{"role": "user", "content": "What does json.dumps do?"}]}]})

    model: str
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True), BeforeValidator(_count_items)]
    system: Annotated[Content | None, BeforeValidator(_count_blocks)] = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None
    """The format of `output_config` by its older name."""


class MessagesBody(CountBody):
    """The body of `POST /v1/messages`. The tier of a service and the metadata change nothing here."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [
        {"model": "tgi", "max_tokens": 20, "messages": [{"role": "user", "content": "What does json.dumps do?"}]}]})

    max_tokens: UInt32
    stop_sequences: Annotated[list[str], Field(fail_fast=True)] | None = None
    stream: bool | None = None
    temperature: Float32 | None = None
    top_p: Float32 | None = None
    top_k: Annotated[Int32, Field(ge=0)] | None = None
    metadata: dict[str, Any] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    context_management: dict[str, Any] | None = None
    deadline_ms: UInt32 | None = None
    """Not Anthropic's."""

    @property
    def is_greedy(self) -> bool:
        """Whether no token is drawn: so few are left by `top_p`, too, if it is 0."""
        return self.temperature == 0 or self.top_p == 0
