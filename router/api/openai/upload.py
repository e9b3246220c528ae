"""The form by which a file is uploaded: `file`, `purpose`, `expires_after[anchor]`, `expires_after[seconds]`."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import BodyPartReader, MultipartReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError, PayloadEncodingError

from penstock.router.api.http.body import check_encoding
from penstock.router.api.openai.storage import LONGEST, check_seconds
from penstock.router.errors import TooLarge, TooSlow, Unreadable, ValidationError, WrongContentType

if TYPE_CHECKING:
    from penstock.router.store.files import FileWriter

MAX_FILE_BYTES = 200_000_000
PAUSE_SECONDS = 60.0
"""The most seconds for which a client may send nothing."""
UPLOAD_SECONDS = 3600.0
"""The most seconds that an upload may take."""
PURPOSE = "batch"
"""The one that files have which clients upload: no route reads others."""
_CHUNK = 1 << 18
_FORM_BYTES = 1 << 16
"""How long a form may be beside its file."""
_PLAIN = {hdrs.CONTENT_TRANSFER_ENCODING: ("7bit", "8bit", "binary"), hdrs.CONTENT_ENCODING: ("identity",)}
"""The headers of a part that tell how it is encoded, and the values that mean that it is not."""
_MAX_FIELD = 1000
"""The most bytes of a field that is no file."""
_MAX_NAME = 255
_FIELDS = ("purpose", "expires_after[anchor]", "expires_after[seconds]")


@dataclass(slots=True)
class Upload:
    """The form's fields, as they have come; `filename` is None before the file has."""

    filename: str | None = None
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> int:
        """The seconds after which the file expires; as with OpenAI, 30 days unless something else is asked for."""
        anchor, seconds = self.fields.get("expires_after[anchor]"), self.fields.get("expires_after[seconds]")
        if anchor is None and seconds is None:
            return LONGEST
        if anchor != "created_at":
            raise ValidationError("`expires_after[anchor]` must be created_at. "
                                  f"Given: {'nothing' if anchor is None else anchor[:40]}")
        if seconds is None or not re.fullmatch("[0-9]{1,20}", seconds):
            raise ValidationError("`expires_after[seconds]` must be an integer. "
                                  f"Given: {'nothing' if seconds is None else seconds[:40]}")
        return check_seconds(int(seconds), "expires_after[seconds]")

    def check(self) -> str:
        """Returns the file's name. Raises ValidationError if a field is missing or wrong."""
        if self.filename is None or "purpose" not in self.fields:
            missing = "file" if self.filename is None else "purpose"
            raise ValidationError(f"`{missing}` is missing from the form", "missing_required_parameter")
        return self.filename


def check_form(request: web.Request) -> None:
    """Refuses a body whose headers say that it is no form, or that it is too long. Raises RouterError."""
    check_encoding(request)
    if request.content_type != "multipart/form-data":
        raise WrongContentType("Expected request with `Content-Type: multipart/form-data`")
    if (request.content_length or 0) > MAX_FILE_BYTES + _FORM_BYTES:
        raise _too_large()


async def read_form(request: web.Request, writer: "FileWriter") -> Upload:
    """Reads the form, and writes the file as it comes. Raises RouterError."""
    upload = Upload()
    try:
        async with asyncio.timeout(UPLOAD_SECONDS):
            async for part in _parts(request):
                await _take(part, upload, writer)
    except TimeoutError as error:
        raise TooSlow from error
    except (ValueError, AssertionError, RuntimeError, HttpProcessingError, PayloadEncodingError) as error:
        # These are aiohttp's, for a form that is not well-formed.
        raise Unreadable(f"Failed to read the form: {error}"[:200]) from error
    return upload


async def _take(part: BodyPartReader, upload: Upload, writer: "FileWriter") -> None:
    name = part.name
    if name != "file" and (name not in _FIELDS or name in upload.fields):
        raise ValidationError(f"the form must have each of file, {', '.join(_FIELDS)} at most once, and no other "
                              f"field. Given: {ascii(name)[1:-1][:40]}")
    for header, plain in _PLAIN.items():
        if (encoding := part.headers.get(header, plain[0])).lower() not in plain:
            raise ValidationError(f"`{name}` must come without the header `{header}`. Given: "
                                  f"{ascii(encoding)[1:-1][:40]}")
    if name == "file":
        await _take_file(part, upload, writer)
        return
    upload.fields[name] = text = await _text(part)
    if name == "purpose" and text != PURPOSE:
        raise ValidationError(f"`purpose` must be {PURPOSE}, for no route reads files of another one. Given: "
                              f"{text[:40]}")


async def _parts(request: web.Request) -> AsyncIterator[BodyPartReader]:
    reader = await request.multipart()
    while True:
        async with asyncio.timeout(PAUSE_SECONDS):
            part = await reader.next()
        if part is None:
            return
        if isinstance(part, MultipartReader):
            raise Unreadable("Failed to read the form: a part of it is a form itself")
        yield part


async def _chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while True:
        async with asyncio.timeout(PAUSE_SECONDS):
            chunk = await part.read_chunk(_CHUNK)
        if not chunk:
            return
        yield chunk


async def _take_file(part: BodyPartReader, upload: Upload, writer: "FileWriter") -> None:
    if upload.filename is not None:
        raise ValidationError("`file` must be one file. Given: several")
    name = (part.filename or "upload")[:_MAX_NAME].replace("\0", "")
    upload.filename = name.encode(errors="replace").decode()  # a database keeps no others
    async for chunk in _chunks(part):
        if writer.num_bytes + len(chunk) > MAX_FILE_BYTES:
            raise _too_large()
        await writer.write(chunk)


def _too_large() -> TooLarge:
    return TooLarge(f"`file` must have at most {MAX_FILE_BYTES} bytes")


async def _text(part: BodyPartReader) -> str:
    content = bytearray()
    async for chunk in _chunks(part):
        content += chunk
        if len(content) > _MAX_FIELD:
            raise ValidationError(f"`{part.name}` must have at most {_MAX_FIELD} bytes. Given: more")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValidationError(f"`{part.name}` must be UTF-8. Given: {ascii(bytes(content))[2:-1][:40]}") from error
