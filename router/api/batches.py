"""OpenAI's `/v1/batches`: make, list, describe and cancel batches, which the router answers when it has time."""

import re
from dataclasses import asdict
from typing import Any, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict

from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.openai import files
from penstock.router.api.openai.storage import (
    ExpiresAfter,
    after_of,
    check_metadata,
    check_query,
    known_form,
    limit_of,
    store_of,
)
from penstock.router.api.openai.upload import PURPOSE
from penstock.router.api.whole_answers import ROUTES
from penstock.router.errors import ValidationError
from penstock.router.generation import request_record
from penstock.router.shapes import Body
from penstock.router.store.records import BatchStatus, StoredBatch

MAX_PAGE, DEFAULT_PAGE = 100, 20
LONGEST_WINDOW = 30 * 24 * 3600
QUERY = {name: files.QUERY[name] for name in ("limit", "after")}
"""The parameters of the list."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


class BatchBody(Body):
    """The body of `POST /v1/batches`."""

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"input_file_id": "file-abc", "endpoint": "/v1/chat/completions", "completion_window": "24h"}]})

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchError(BaseModel):
    code: str
    line: int | None
    message: str
    param: str | None


class BatchErrors(BaseModel):
    object: Literal["list"]
    data: list[BatchError]


class RequestCounts(BaseModel):
    total: int
    completed: int
    failed: int


class InputDetails(BaseModel):
    cached_tokens: int


class OutputDetails(BaseModel):
    reasoning_tokens: int


class BatchUsage(BaseModel):
    """The tokens of all answers."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Batch(BaseModel):
    """A batch. `expires_at` is when what is not answered then is given up."""

    id: str
    object: Literal["batch"]
    endpoint: str
    model: str | None
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage
    metadata: dict[str, str] | None


class BatchPage(BaseModel):
    object: Literal["list"]
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool


async def create(request: web.Request) -> web.Response:
    """Makes a batch of a file that was uploaded; its lines are checked when a router begins with it."""
    store = store_of(request)
    body = await read_body(request, BatchBody)
    if body.endpoint not in ROUTES:
        raise ValidationError(f"`endpoint` must be one of {', '.join(ROUTES)}. Given: {body.endpoint:.100}")
    seconds = _window(body.completion_window)
    check_metadata(body.metadata)
    expires = body.output_expires_after
    output_seconds = None if expires is None else expires.checked("output_expires_after.seconds")
    file = await store.files.get(known_form("file", body.input_file_id, "input_file_id"), "input_file_id")
    if file.purpose != PURPOSE:
        raise ValidationError(f"`input_file_id` must name a file whose purpose is {PURPOSE}. Given: {file.purpose}")
    batch = await store.batches.add(
        body.endpoint, file.id, body.completion_window, seconds, body.metadata, output_seconds,
        request_record.current().key)
    return json_response(_described(batch))


async def batches(request: web.Request) -> web.Response:
    """Answers with a page of the list of batches, the newest first."""
    store = store_of(request)
    check_query(request, QUERY)
    found, has_more = await store.batches.page(
        limit_of(request, MAX_PAGE, DEFAULT_PAGE), after_of(request, "batch"))
    return json_response(files.page([_described(batch) for batch in found], has_more))


async def batch(request: web.Request) -> web.Response:
    """Answers with the description of a batch."""
    return json_response(_described(await store_of(request).batches.get(_id(request))))


async def cancel(request: web.Request) -> web.Response:
    """Cancels a batch: what is answered by then is kept."""
    return json_response(_described(await store_of(request).batches.cancel(_id(request))))


def _id(request: web.Request) -> str:
    return known_form("batch", request.match_info["batch"])


def _window(text: str) -> int:
    """Returns the seconds after which a batch expires. Raises ValidationError."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", text)
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < seconds <= LONGEST_WINDOW:
        raise ValidationError("`completion_window` must be a number of seconds, minutes, hours or days, such as 24h, "
                              f"of at most 30d. Given: {text:.40}")
    return seconds


def _described(batch: StoredBatch) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(batch).items() if name in Batch.model_fields}
    errors = None if batch.errors is None else {"object": "list", "data": batch.errors}
    usage = {"input_tokens": batch.input_tokens, "input_tokens_details": {"cached_tokens": batch.cached_tokens},
             "output_tokens": batch.output_tokens,
             "output_tokens_details": {"reasoning_tokens": batch.reasoning_tokens},
             "total_tokens": batch.input_tokens + batch.output_tokens}
    counts = {"total": batch.total, "completed": batch.completed, "failed": batch.failed}
    return {**fields, "object": "batch", "errors": errors, "request_counts": counts, "usage": usage}
