"""The shapes of answers of TGI's routes, for the OpenAPI document; handlers build them as plain dicts."""

from typing import Literal

from pydantic import BaseModel


class Error(BaseModel):
    """The body of an error, as TGI has it."""

    error: str
    error_type: str


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
    score: float | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None


class _WholeDetails(_Details):
    prefill: list[PrefillToken]
    tokens: list[Token]
    top_tokens: list[list[Token]] | None = None


class Sequence(_WholeDetails):
    """One of the candidates of `best_of`, of the `n` answers or of those of a beam search, that were not the best."""

    generated_text: str


class OtherText(BaseModel):
    """One of the `n` answers that were asked for, without details."""

    generated_text: str


class Details(_WholeDetails):
    best_of_sequences: list[Sequence] | None = None


class Generated(BaseModel):
    generated_text: str
    best_of_sequences: list[OtherText] | None = None
    details: Details | None = None


class StreamDetails(_Details):
    input_length: int


class StreamEvent(BaseModel):
    """One event of a stream; the last has the whole text, and the details if they were asked for."""

    index: int
    token: Token
    top_tokens: list[Token] | None = None
    generated_text: str | None
    details: StreamDetails | None


class PlacedToken(BaseModel):
    """A token of a text; `start` and `stop` count bytes of the text."""

    id: int
    text: str
    start: int
    stop: int


class ChatTokens(BaseModel):
    tokenize_response: list[PlacedToken]
    templated_text: str


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
    prefix_caching: bool
    model_implementation: str
