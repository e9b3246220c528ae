"""OpenAI's `/v1/files`: upload, list, describe, give and delete files."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal

from aiohttp import web
from pydantic import BaseModel

from penstock.router.api.http.body import json_response
from penstock.router.api.http.parts import send_parts
from penstock.router.api.openai.storage import (
    DOWNLOADS,
    UPLOADS,
    ExpiresAfter,
    after_of,
    check_query,
    known_form,
    limit_of,
    store_of,
)
from penstock.router.api.openai.upload import PURPOSE, check_form, read_form
from penstock.router.errors import ValidationError
from penstock.router.store.errors import StoreUnavailable
from penstock.router.store.records import StoredFile

MAX_PAGE = 10_000
UNREAD_SECONDS = 60.0
"""The most seconds for which a client may leave a part of a file unread."""
TURN_SECONDS = 60.0
"""The most seconds for which an upload, or a part of a file that is sent, waits for others."""

QUERY = {"limit": "How many items the page has at most.", "after": "The id of the item behind which the page begins.",
         "purpose": "The purpose of the files.", "order": "`asc` for the oldest first, or `desc`."}
"""The parameters of the list."""
_PURPOSES = (PURPOSE, "batch_output")


class UploadForm(BaseModel):
    """The fields of the form."""

    file: bytes
    purpose: Literal["batch"]
    expires_after: ExpiresAfter | None = None


class FileObject(BaseModel):
    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]


class FilePage(BaseModel):
    object: Literal["list"]
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(BaseModel):
    id: str
    object: Literal["file"]
    deleted: Literal[True]


async def upload(request: web.Request) -> web.Response:
    """Stores a file, part by part as it comes."""
    files = store_of(request).files
    check_form(request)
    async with _turn(request.app[UPLOADS]), files.writing() as writer:
        form = await read_form(request, writer)
        return json_response(_described(await writer.finish(form.check(), form.fields["purpose"], form.seconds)))


@asynccontextmanager
async def _turn(places: asyncio.Semaphore) -> AsyncIterator[None]:
    """Waits for a place, which the block has. Raises StoreUnavailable."""
    try:
        async with asyncio.timeout(TURN_SECONDS):
            await places.acquire()
    except TimeoutError as error:
        raise StoreUnavailable("as many files are sent or received as may be at once") from error
    try:
        yield
    finally:
        places.release()


async def files(request: web.Request) -> web.Response:
    """Answers with a page of the list of files, the newest first unless `order` says otherwise."""
    store, query = store_of(request), request.query
    check_query(request, QUERY)
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ValidationError(f"`order` must be asc or desc. Given: {order:.40}")
    purpose = query.get("purpose")
    if purpose not in (None, *_PURPOSES):
        raise ValidationError(f"`purpose` must be {' or '.join(_PURPOSES)}. Given: {purpose:.40}")
    found, has_more = await store.files.page(
        purpose, limit_of(request, MAX_PAGE, MAX_PAGE), after_of(request, "file"), order == "asc")
    return json_response(page([_described(file) for file in found], has_more))


async def file(request: web.Request) -> web.Response:
    """Answers with the description of a file."""
    return json_response(_described(await store_of(request).files.get(_id(request))))


async def content(request: web.Request) -> web.StreamResponse:
    """Answers with a file's bytes."""
    files = store_of(request).files
    stored = await files.get(_id(request))
    async with _turn(request.app[DOWNLOADS]):
        pass  # so that a client hears of it if there is none, which a status can't tell later
    response = web.StreamResponse(headers={
        "content-type": "application/octet-stream", "content-length": str(stored.bytes)})
    parts = _in_turn(files.parts(stored.id), request.app[DOWNLOADS])
    return await send_parts(request, response, parts, UNREAD_SECONDS)


async def _in_turn(parts: AsyncGenerator[bytes], places: asyncio.Semaphore) -> AsyncGenerator[bytes]:
    """Yields the parts of a file, each once there is a place for it, which it has until it is sent."""
    async with aclosing(parts):
        while True:
            async with _turn(places):
                part = await anext(parts, None)
                if part is None:
                    return
                yield part


async def delete(request: web.Request) -> web.Response:
    """Deletes a file, unless a batch reads it."""
    id = _id(request)
    await store_of(request).files.delete(id)
    return json_response({"id": id, "object": "file", "deleted": True})


def _id(request: web.Request) -> str:
    return known_form("file", request.match_info["file"])


def page(data: list[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    """Returns a page of a list, as OpenAI has it."""
    return {"object": "list", "data": data, "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None, "has_more": has_more}


def _described(file: StoredFile) -> dict[str, Any]:
    return {"id": file.id, "object": "file", "bytes": file.bytes, "created_at": file.created_at,
            "expires_at": file.expires_at, "filename": file.filename, "purpose": file.purpose, "status": "processed"}
