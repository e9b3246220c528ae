"""The shapes of answers of `/v1/responses`, for the OpenAPI document; handlers build them as plain dicts."""

from typing import Any, Literal

from pydantic import BaseModel

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[dict[str, Any]] = []


class OutputText(BaseModel):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[OutputLogprob]


class ReasoningText(BaseModel):
    type: Literal["reasoning_text"]
    text: str


class OutputMessage(BaseModel):
    """A text of the model."""

    type: Literal["message"]
    id: str
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText]


class ReasoningItem(BaseModel):
    """The reasoning of the model before it answers."""

    type: Literal["reasoning"]
    id: str
    status: ItemStatus
    summary: list[Any]
    content: list[ReasoningText]
    encrypted_content: str | None = None


class FunctionCall(BaseModel):
    """A call of a function; its arguments are JSON, as a string."""

    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str
    status: ItemStatus


class CustomToolCall(BaseModel):
    """A call of a tool that takes a text."""

    type: Literal["custom_tool_call"]
    id: str
    call_id: str
    name: str
    namespace: str | None = None
    input: str
    status: ItemStatus


OutputItem = OutputMessage | ReasoningItem | FunctionCall | CustomToolCall


class ResponseFailure(BaseModel):
    code: str
    message: str


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"]


class InputDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: Literal[0]


class OutputDetails(BaseModel):
    reasoning_tokens: int


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Response(BaseModel):
    """A response. It repeats what was asked, or by which values it was made where nothing was."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Status
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    background: bool
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: str | None


class ResponseEvent(BaseModel):
    """An event of a stream. Which other fields it has depends on its type: `response` has all of it, others an `item`
    at its `output_index`, a `part` of it, or a `delta`."""

    type: str
    sequence_number: int
    response: Response | None = None
    output_index: int | None = None
    item_id: str | None = None
    item: OutputItem | None = None
    content_index: int | None = None
    part: OutputText | ReasoningText | None = None
    delta: str | None = None
    text: str | None = None
    arguments: str | None = None
    input: str | None = None
    name: str | None = None
    logprobs: list[OutputLogprob] | None = None


class InputTokens(BaseModel):
    object: Literal["response.input_tokens"]
    input_tokens: int


class DeletedResponse(BaseModel):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemPage(BaseModel):
    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
