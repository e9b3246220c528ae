"""The shapes of answers of OpenAI's routes, for the OpenAPI document; handlers build them as plain dicts."""

from typing import Any, Literal

from pydantic import BaseModel


class OpenAIErrorDetail(BaseModel):
    """The description of an error: a sentence, the kind of error, the field, if it is one, and a word for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """A refusal on OpenAI's routes."""

    error: OpenAIErrorDetail


class OpenAIErrorEvent(OpenAIError):
    """The event that tells that a stream has failed, and of which request, as the header `x-request-id` has it."""

    request_id: str


class CachedTokens(BaseModel):
    cached_tokens: int


class CompletionTokens(BaseModel):
    """The kinds of tokens in an answer: those that were guessed, where any are, and those that are thoughts, where the
    model thinks."""

    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: CompletionTokens | None = None


class Logprobs(BaseModel):
    """Parallel lists with an item for each token; the first token of a prompt has no logprob."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class PromptLogprob(BaseModel):
    """A token in a place of the prompt; the likeliest of all has the rank 1."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""An object for each token of a prompt, by token id; the first token has none."""


class CompletionChoice(BaseModel):
    """One answer to one prompt; token ids and the logprobs of the prompt are there if they are asked for."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: str | None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class _Head(BaseModel):
    id: str
    created: int
    model: str
    system_fingerprint: str
    service_tier: Literal["default", "flex", "priority"] | None = None


class Completion(_Head):
    """A whole answer, or a chunk of a stream, of which the last has the usage."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage | None = None


class CalledFunction(BaseModel):
    """The function of a call; in chunks the name comes once, and the arguments, which are JSON, in pieces."""

    name: str | None = None
    arguments: str


class Call(BaseModel):
    """A call of a tool; `index` is there in chunks, `id` and `type` in the first chunk of a call."""

    index: int | None = None
    id: str | None = None
    type: Literal["function"] | None = None
    function: CalledFunction


class Message(BaseModel):
    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None
    function_call: CalledFunction | None = None


class Delta(BaseModel):
    """The part that a chunk adds to the message: a text, thoughts under both of their names, or a part of a call."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None
    function_call: CalledFunction | None = None


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[TokenLogprob]
    refusal: None = None


class _Choice(BaseModel):
    index: int
    logprobs: ChatLogprobs | None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class ChatChoice(_Choice):
    message: Message
    finish_reason: str


class ChunkChoice(_Choice):
    delta: Delta
    finish_reason: str | None


class ChatCompletion(_Head):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | None = None


class ChatChunk(_Head):
    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    usage: Usage | None = None


class Model(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str | None = None
    parent: str | None = None


class Models(BaseModel):
    object: Literal["list"]
    data: list[Model]
    models: list[Any] | None = None
