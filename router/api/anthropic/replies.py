"""The shapes of answers of Anthropic's routes, for the OpenAPI document; handlers build them as plain dicts."""

from typing import Any, Literal

from pydantic import BaseModel


class FailureDetail(BaseModel):
    """The kind of a failure, and a sentence."""

    type: str
    message: str


class Failure(BaseModel):
    """A refusal on Anthropic's routes, and the event that tells that a stream has failed."""

    type: Literal["error"]
    error: FailureDetail
    request_id: str | None


class TextBlock(BaseModel):
    type: Literal["text"]
    text: str


class ThinkingBlock(BaseModel):
    """The model's thoughts; if they are not shown, the signature carries them."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseBlock(BaseModel):
    """A call of a tool; in the event that begins it the input is empty."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class CacheCreation(BaseModel):
    ephemeral_5m_input_tokens: int
    ephemeral_1h_input_tokens: int


class ThinkingTokens(BaseModel):
    thinking_tokens: int


class Counts(BaseModel):
    """The tokens so far: of the prompt those that were computed, and those that were found in the cache; of the answer
    all, and where the model thinks, those of its thoughts."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens | None = None


class MessageUsage(Counts):
    cache_creation: CacheCreation
    service_tier: Literal["standard"]


class AppliedEdits(BaseModel):
    """The edits to the conversation that were asked for and made: none are."""

    applied_edits: list[dict[str, Any]]


class AnswerMessage(BaseModel):
    """An answer; in the event that begins it there is no content yet, and no reason to stop."""

    type: Literal["message"]
    role: Literal["assistant"]
    id: str
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage
    context_management: AppliedEdits | None = None


class MessageStart(BaseModel):
    type: Literal["message_start"]
    message: AnswerMessage


class BlockStart(BaseModel):
    type: Literal["content_block_start"]
    index: int
    content_block: AnswerBlock


class TextDelta(BaseModel):
    type: Literal["text_delta"]
    text: str


class ThinkingDelta(BaseModel):
    type: Literal["thinking_delta"]
    thinking: str


class SignatureDelta(BaseModel):
    type: Literal["signature_delta"]
    signature: str


class InputDelta(BaseModel):
    """A piece of the JSON of a call's input."""

    type: Literal["input_json_delta"]
    partial_json: str


class BlockDelta(BaseModel):
    type: Literal["content_block_delta"]
    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockStop(BaseModel):
    type: Literal["content_block_stop"]
    index: int


class Stop(BaseModel):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(BaseModel):
    type: Literal["message_delta"]
    delta: Stop
    usage: Counts


class MessageStop(BaseModel):
    type: Literal["message_stop"]


class Ping(BaseModel):
    """Comes while there is nothing else to tell."""

    type: Literal["ping"]


MessageEvent = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping | Failure
"""The events of a stream, each with its type as its name."""


class TokenCount(BaseModel):
    input_tokens: int


class ModelInfo(BaseModel):
    """A model, or an adapter, as Anthropic describes models."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: int
    max_tokens: int


class ModelPage(BaseModel):
    """A page of the list of models."""

    data: list[ModelInfo]
    has_more: bool
    first_id: str | None
    last_id: str | None
