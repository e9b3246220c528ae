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
    """A model or an adapter. Of one that makes vectors or scores its tasks are told, and their size or names."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str | None = None
    parent: str | None = None
    tasks: list[str] | None = None
    vector_size: int | None = None
    labels: list[str] | None = None
    state: Literal["unloaded", "loading", "ready", "unloading", "failed", "unasked"] | None = None
    """The state of a model of a server of several."""
    source: str | None = None
    """The URL of the server that would be asked now, of a model that others answer for."""
    steps: list[str] | None = None
    """The models that the steps of a pipeline ask."""
    targets: dict[str, float] | None = None
    """The models that an alias stands for, each with the weight of its share of the requests."""
    shadow: dict[str, float] | None = None
    """The models that a share of its requests is sent to, too."""


class ModelState(BaseModel):
    """A model that was loaded or unloaded, or an alias that was changed."""

    id: str
    object: Literal["model"]
    state: Literal["ready", "unloaded"] | None = None
    targets: dict[str, float] | None = None
    shadow: dict[str, float] | None = None


class Models(BaseModel):
    object: Literal["list"]
    data: list[Model]
    models: list[Any] | None = None


class TextUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    """The vector of a text: numbers, or the base64 of little-endian float32 ones."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(BaseModel):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: TextUsage
