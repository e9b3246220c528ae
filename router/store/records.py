"""The records of files, batches and responses: how others see what is stored."""

import enum
from dataclasses import dataclass
from typing import Any

PART_BYTES = 1 << 20
"""How many bytes a part of a file's content has, but for the last."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file. Times are in seconds since 1970."""

    id: str
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    bytes: int


class BatchStatus(enum.StrEnum):
    """The states of a batch, by OpenAI's names."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


ACTIVE = (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING)
"""The states in which a router has something to do."""
ENDING = (BatchStatus.FINALIZING, BatchStatus.CANCELLING)
"""Those of them in which no line is to be answered any more."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch. Times are in seconds since 1970; `output_seconds` is after how many its output expires."""

    id: str
    created_at: int
    endpoint: str
    input_file_id: str
    completion_window: str
    metadata: dict[str, str] | None
    output_seconds: int | None
    model: str | None
    status: BatchStatus
    errors: list[dict[str, Any]] | None
    output_file_id: str | None
    error_file_id: str | None
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    total: int
    completed: int
    failed: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    api_key: str | None
    """The name of the key of whoever has made it."""


class ResponseStatus(enum.StrEnum):
    """The states of a response, by OpenAI's names."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the response changes any more."""
        return self not in UNFINISHED


UNFINISHED = (ResponseStatus.QUEUED, ResponseStatus.IN_PROGRESS)
"""The states of responses that a router is to make."""
VOID = (ResponseStatus.FAILED, ResponseStatus.CANCELLED)
"""Those of responses from which no conversation goes on."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response. `request` and `response` are JSON, of which the latter tells of no later state than `status`; the
    first of its events are stored, `num_events` of them, if it `is_background`. The items that came in and went out
    have `item_bytes`. `answer_name` is the name of the answer of which it is made."""

    id: str
    created_at: int
    status: ResponseStatus
    previous_id: str | None
    is_background: bool
    request: bytes
    response: bytes
    item_bytes: int
    answer_name: str
    num_events: int = 0
    api_key: str | None = None
    """The name of the key of whoever has asked for it."""


@dataclass(frozen=True, slots=True)
class AnsweredLine:
    """The answer to a line: a line of the output, or of the file of errors, and the tokens that it took."""

    number: int
    content: bytes
    has_failed: bool
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
