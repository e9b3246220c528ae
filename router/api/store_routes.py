"""The routes of files and batches."""

from collections.abc import Mapping
from typing import Any

from penstock.router.api import batches
from penstock.router.api.http.route import JSON, Reply, Route
from penstock.router.api.openai import files
from penstock.router.api.usual_replies import LATER, OPENAI_READING, refusing

ASKING = {
    **{status: OPENAI_READING[status] for status in (401, 500)},
    403: Reply("A page of another site asks, and the server has no keys and no list of sites."),
    501: Reply("The server keeps no files, batches and responses: it has neither --data-dir nor --database-url."),
    503: Reply("The database can't be reached now.", headers=LATER),
}
LISTING = {**ASKING, 400: Reply("A parameter is unknown, or its value breaks a rule.")}
CHANGING = {**ASKING, 507: Reply("There is no room left where files, batches and responses are kept.")}
_UPLOADING = {
    **CHANGING,
    400: Reply("The body is no form, or does not have the fields, or a value breaks a rule."),
    408: Reply("The form did not arrive in time."),
    413: Reply("The file is longer than a file may be."),
    415: Reply("The content type is not that of a form, or the form is compressed."),
    503: Reply("The database can't be reached now, or as many files are sent and received as may be at once.",
               headers=LATER),
}
_MAKING = {**OPENAI_READING, **CHANGING}
_NO_FILE = {404: Reply("There is no such file.")}
_NO_BATCH = {404: Reply("There is no such batch.")}


def openai_route(
    method: str, path: str, handler: Any, summary: str, reply: Reply, others: Mapping[int, Reply], **more: Any
) -> Route:
    """Returns a route of OpenAI's API by the meaning of its success, and of its other answers."""
    replies = dict(sorted(refusing({200: reply, **others}).items()))
    return Route(method, path, handler, summary, replies, is_costly=True, tag="OpenAI", **more)


_FILE = Reply("The file.", {JSON: files.FileObject})
_BATCH = Reply("The batch.", {JSON: batches.Batch})
STORE_ROUTES = (
    openai_route("POST", "/v1/files", files.upload, "Uploads a file of requests for a batch.", _FILE, _UPLOADING,
                 body=files.UploadForm, media="multipart/form-data"),
    openai_route("GET", "/v1/files", files.files, "Lists files.", Reply("A page of the list.", {JSON: files.FilePage}),
                 {**LISTING, 404: Reply("There is no file `after`.")}, query=files.QUERY),
    openai_route("GET", "/v1/files/{file}", files.file, "Describes a file.", _FILE, {**ASKING, **_NO_FILE}),
    openai_route("GET", "/v1/files/{file}/content", files.content, "Gives the bytes of a file.",
                 Reply("The bytes.", {"application/octet-stream": bytes}), {**ASKING, **_NO_FILE}),
    openai_route("DELETE", "/v1/files/{file}", files.delete, "Deletes a file.",
                 Reply("The file is deleted.", {JSON: files.DeletedFile}),
                 {**CHANGING, **_NO_FILE, 409: Reply("A batch reads the file.")}),
    openai_route("POST", "/v1/batches", batches.create, "Makes a batch of a file of requests.", _BATCH,
                 {**_MAKING, 404: Reply("There is no file `input_file_id`.")}, body=batches.BatchBody),
    openai_route("GET", "/v1/batches", batches.batches, "Lists batches.",
                 Reply("A page of the list.", {JSON: batches.BatchPage}),
                 {**LISTING, 404: Reply("There is no batch `after`.")}, query=batches.QUERY),
    openai_route("GET", "/v1/batches/{batch}", batches.batch, "Describes a batch.", _BATCH, {**ASKING, **_NO_BATCH}),
    openai_route("POST", "/v1/batches/{batch}/cancel", batches.cancel, "Cancels a batch.", _BATCH,
                 {**CHANGING, **_NO_BATCH, 409: Reply("The batch has ended, or is about to.")}),
)
