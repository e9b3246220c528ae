"""The routes of files and batches."""

from collections.abc import Mapping
from typing import Any

from penstock.router.api.http.route import JSON, Reply, Route
from penstock.router.api.openai import batches, files
from penstock.router.api.usual_replies import LATER, OPENAI_READING, refusing

_STORING = {
    **OPENAI_READING,
    501: Reply("The server keeps no files and no batches: it has neither --data-dir nor --database-url."),
    503: Reply("The database can't be reached now.", headers=LATER),
    507: Reply("There is no room left where files and batches are kept."),
}
_NO_FILE = {404: Reply("There is no such file.")}
_NO_BATCH = {404: Reply("There is no such batch.")}
_PAGE = {"limit": "How many items the page has at most.", "after": "The id of the item behind which the page begins."}


def _route(
    method: str, path: str, handler: Any, summary: str, reply: Reply, others: Mapping[int, Reply], **more: Any
) -> Route:
    replies = refusing({200: reply, **_STORING, **others})
    return Route(method, path, handler, summary, replies, is_costly=True, tag="OpenAI", **more)


_FILE = Reply("The file.", {JSON: files.FileObject})
_BATCH = Reply("The batch.", {JSON: batches.Batch})
STORE_ROUTES = (
    _route("POST", "/v1/files", files.upload, "Uploads a file of requests for a batch.", _FILE, {},
           body=files.UploadForm, media="multipart/form-data"),
    _route("GET", "/v1/files", files.files, "Lists files.", Reply("A page of the list.", {JSON: files.FilePage}),
           {404: Reply("There is no file `after`.")},
           query={**_PAGE, "purpose": "The purpose of the files.", "order": "`asc` for the oldest first, or `desc`."}),
    _route("GET", "/v1/files/{file}", files.file, "Describes a file.", _FILE, _NO_FILE),
    _route("GET", "/v1/files/{file}/content", files.content, "Gives the bytes of a file.",
           Reply("The bytes.", {"application/octet-stream": bytes}), _NO_FILE),
    _route("DELETE", "/v1/files/{file}", files.delete, "Deletes a file.",
           Reply("The file is deleted.", {JSON: files.DeletedFile}),
           {**_NO_FILE, 409: Reply("A batch reads the file.")}),
    _route("POST", "/v1/batches", batches.create, "Makes a batch of a file of requests.", _BATCH,
           {404: Reply("There is no file `input_file_id`.")}, body=batches.BatchBody),
    _route("GET", "/v1/batches", batches.batches, "Lists batches.",
           Reply("A page of the list.", {JSON: batches.BatchPage}), {404: Reply("There is no batch `after`.")},
           query=_PAGE),
    _route("GET", "/v1/batches/{batch}", batches.batch, "Describes a batch.", _BATCH, _NO_BATCH),
    _route("POST", "/v1/batches/{batch}/cancel", batches.cancel, "Cancels a batch.", _BATCH,
           {**_NO_BATCH, 409: Reply("The batch has ended, or is about to.")}),
)
