"""Bodies of `/v1/responses`: fields, types and defaults as OpenAI takes them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from penstock.router.api.openai.bodies import Seed
from penstock.router.api.openai.tools import MAX_TOOLS
from penstock.router.chat.messages import MAX_ITEMS
from penstock.router.generation.parameters import Float32, Int32, LogitBias, Stops, TokenIds, UInt32
from penstock.router.grammar.forms import check_response_format
from penstock.router.shapes import Body

MAX_TOP_LOGPROBS = 20
MAX_ALL_TOOLS = 4 * MAX_TOOLS
"""Tools of all types, of which those that are not served are skipped."""
Includable = Literal[
    "reasoning.encrypted_content", "message.output_text.logprobs", "file_search_call.results",
    "web_search_call.results", "web_search_call.action.sources", "message.input_image.image_url",
    "computer_call_output.output.image_url", "code_interpreter_call.outputs"]
"""The parts that `include` may name; all but the first two are of items that this server never makes."""
Include = Annotated[list[Includable], Field(max_length=32, fail_fast=True)]


class _Open(Body):
    """The base of parts of bodies whose other fields are kept, since they are told again."""

    model_config = ConfigDict(extra="allow")


class Part(_Open):
    """A part of a content: text that came in or went out, or a refusal. Others are refused by their type."""

    type: str
    text: str | None = None
    refusal: str | None = None


def _kind(value: object) -> str | None:
    """Returns which of the forms of a content, or of an input, this is."""
    return "text" if isinstance(value, str) else "list" if isinstance(value, list) else None


_BY_KIND = Discriminator(_kind, custom_error_type="text_or_list", custom_error_message="must be a string or a list")
Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[Part], Field(fail_fast=True), Tag("list")], _BY_KIND]


class Item(_Open):
    """An item of a conversation: a message, a call or its output, or the reasoning before them. Which of the fields it
    must have depends on its type."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: Content | None = None
    status: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: Content | None = None
    encrypted_content: str | None = None


class GrammarFormat(_Open):
    """The form of what a custom tool takes: any text, or that of a grammar."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None


class ToolItem(_Open):
    """A tool that the model may call: a function, one that takes a text, or a namespace with several of them. Those of
    other types are skipped where the request can do without them."""

    type: str
    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: GrammarFormat | None = None
    tools: Annotated[list["ToolItem"], Field(max_length=MAX_ALL_TOOLS, fail_fast=True)] | None = None


class ChosenTool(_Open):
    """A tool, or several ones, of which the answer must or may call one."""

    type: str
    name: str | None = None
    namespace: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: Annotated[list["ChosenTool"], Field(max_length=MAX_ALL_TOOLS, fail_fast=True)] | None = None


class TextFormat(_Open):
    """The form of the answer's text."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    json_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None
    description: str | None = None


def _check_format(value: TextFormat) -> TextFormat:
    check_response_format(as_response_format(value))
    return value


def as_response_format(value: TextFormat) -> dict[str, Any]:
    """Returns the form as chats have it."""
    if value.type != "json_schema":
        return {"type": value.type}
    inner = {"name": value.name, "schema": value.json_schema}
    return {"type": value.type, "json_schema": {key: each for key, each in inner.items() if each is not None}}


class Text(_Open):
    """Says what the answer's text shall be like."""

    format: Annotated[TextFormat, AfterValidator(_check_format)] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(_Open):
    """Says how much the model shall think, and how that is told."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class StreamOptions(_Open):
    """The options of a stream, whose events are never padded."""

    include_obfuscation: bool | None = None


def _count(items: object) -> object:
    """Returns the unread `input` unchanged; ValueError if it has too many items and parts."""
    if isinstance(items, list):
        number = len(items)
        if number <= MAX_ITEMS:
            number += sum(
                len(inner) for item in items if isinstance(item, dict)
                for inner in (item.get("content"), item.get("output")) if isinstance(inner, list))
        if number > MAX_ITEMS:
            raise ValueError(f"supports up to {MAX_ITEMS} items and parts in all. Given: {number}")
    return items


Input = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[Item], Field(fail_fast=True), Tag("list")], _BY_KIND]


class AskingBody(Body):
    """The fields that make a prompt, by which tokens can be counted, too."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    input: Annotated[Input, BeforeValidator(_count)] = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: Annotated[list[ToolItem], Field(max_length=MAX_ALL_TOOLS, fail_fast=True)] | None = None
    tool_choice: str | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    truncation: Literal["auto", "disabled"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    thinking_token_budget: UInt32 | None = None


class ResponseBody(AskingBody):
    """The body of `POST /v1/responses`. Null is the same as absent. The second group is that of other servers."""

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"input": "What does json.dumps do?", "max_output_tokens": 20}]})

    max_output_tokens: Annotated[int, Field(ge=1, lt=2**32)] | None = None
    max_tool_calls: UInt32 | None = None
    metadata: dict[str, str] | None = None
    include: Include | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Float32 | None = None
    top_p: Float32 | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    user: Annotated[str, Field(max_length=512)] | None = None
    safety_identifier: Annotated[str, Field(max_length=512)] | None = None
    prompt_cache_key: Annotated[str, Field(max_length=512)] | None = None

    seed: Seed | None = None
    stop: Stops = []
    stop_token_ids: TokenIds = []
    logit_bias: LogitBias = {}
    frequency_penalty: Float32 | None = None
    presence_penalty: Float32 | None = None
    repetition_penalty: Float32 | None = None
    top_k: Int32 | None = None
    min_p: Float32 | None = None
    typical_p: Float32 | None = None
    min_tokens: UInt32 | None = None
    ignore_eos: bool | None = None
    priority: Int32 | None = None
    deadline_ms: UInt32 | None = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether the tokens of the answer's text are told with their logprobs."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or ())

    @property
    def carries_reasoning(self) -> bool:
        """Whether reasoning is told once more in a form that clients send back unread."""
        return "reasoning.encrypted_content" in (self.include or ())
