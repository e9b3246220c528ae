"""What answers look like, for the OpenAPI document; handlers build them as plain dicts."""

from typing import Literal

from pydantic import BaseModel


class Error(BaseModel):
    """TGI's error body."""

    error: str
    error_type: str


class OpenAIErrorDetail(BaseModel):
    message: str
    http_status_code: int


class OpenAIError(BaseModel):
    """The event that ends a stream of OpenAI's routes."""

    error: OpenAIErrorDetail


class PrefillToken(BaseModel):
    id: int
    text: str
    logprob: float | None


class Token(BaseModel):
    id: int
    text: str
    logprob: float
    special: bool


FinishReason = Literal["length", "eos_token", "stop_sequence"]


class _Details(BaseModel):
    finish_reason: FinishReason
    generated_tokens: int
    seed: int | None
    prefix_hit_tokens: int


class _WholeDetails(_Details):
    prefill: list[PrefillToken]
    tokens: list[Token]
    top_tokens: list[list[Token]] | None = None


class Sequence(_WholeDetails):
    """One of the candidates that were not the best."""

    generated_text: str


class Details(_WholeDetails):
    best_of_sequences: list[Sequence] | None = None


class Generated(BaseModel):
    generated_text: str
    details: Details | None = None


class StreamDetails(_Details):
    input_length: int


class StreamEvent(BaseModel):
    """One `data:` line of `/generate_stream`; the last has text, and details if asked."""

    index: int
    token: Token
    top_tokens: list[Token] | None = None
    generated_text: str | None
    details: StreamDetails | None


class PlacedToken(BaseModel):
    """`start` and `stop` count bytes of the text."""

    id: int
    text: str
    start: int
    stop: int


class ChatTokens(BaseModel):
    tokenize_response: list[PlacedToken]
    templated_text: str


class CachedTokens(BaseModel):
    cached_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Logprobs(BaseModel):
    """Lists side by side, of each token; the prompt's first has no logprob."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """Token ids come if they are asked for."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: str
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Head(BaseModel):
    id: str
    created: int
    model: str
    system_fingerprint: str


class Completion(_Head):
    """Also each chunk of a stream, with the usage in the last."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage | None = None


class CalledFunction(BaseModel):
    """In chunks the name comes once, and the arguments, which are JSON, in pieces."""

    name: str | None = None
    arguments: str


class Call(BaseModel):
    """`index` is told in chunks; id and type in the first of a call."""

    index: int | None = None
    id: str | None = None
    type: Literal["function"] | None = None
    function: CalledFunction


class Message(BaseModel):
    role: Literal["assistant"]
    content: str | None
    tool_calls: list[Call] | None = None


class ChatToken(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None


class ScoredChatToken(ChatToken):
    top_logprobs: list[ChatToken]


class ChatLogprobs(BaseModel):
    content: list[ScoredChatToken]


class _Choice(BaseModel):
    index: int
    logprobs: ChatLogprobs | None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class ChatChoice(_Choice):
    message: Message
    finish_reason: str


class ChunkChoice(_Choice):
    delta: Message
    finish_reason: str | None


class ChatCompletion(_Head):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class ChatChunk(_Head):
    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    usage: Usage | None = None


class Predictions(BaseModel):
    predictions: list[str]


class Info(BaseModel):
    model_id: str
    model_sha: str | None
    model_pipeline_tag: str | None
    max_concurrent_requests: int
    max_best_of: int
    max_stop_sequences: int
    max_input_tokens: int
    max_total_tokens: int
    validation_workers: int
    max_client_batch_size: int
    router: str
    version: str
    sha: str | None
    docker_label: str | None
    model_dtype: str
    model_device_type: str
    waiting_served_ratio: float
    max_batch_total_tokens: int
    max_waiting_tokens: int
    max_batch_size: int
    numerics: str
    deterministic: bool


class Model(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(BaseModel):
    object: Literal["list"]
    data: list[Model]
