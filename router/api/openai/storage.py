"""The store, as handlers find it, and the rules that files, batches and responses share."""

import asyncio
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal

from aiohttp import hdrs, web

from penstock.router.api.http.access import ACCESS
from penstock.router.errors import ValidationError
from penstock.router.shapes import Body
from penstock.router.store.errors import ForeignPage, NoStore, NotStored

if TYPE_CHECKING:
    from penstock.router.store.store import Store  # which imports SQLAlchemy

STORE = web.AppKey["Store"]("store")
UPLOADS = web.AppKey("uploads", asyncio.Semaphore)
"""The places of files that are received at once."""
DOWNLOADS = web.AppKey("downloads", asyncio.Semaphore)
"""The places of parts of files that are sent at once."""

SHORTEST, LONGEST = 3600, 30 * 24 * 3600
"""The least and the most seconds after which a file may expire."""
MAX_PAIRS, MAX_METADATA_KEY, MAX_VALUE = 16, 64, 512
"""How many pairs metadata may have, and how long their keys and values may be."""
_ID = re.compile(r"[\w-]{1,100}", re.ASCII)


class ExpiresAfter(Body):
    """Says after how many seconds a file expires."""

    anchor: Literal["created_at"]
    seconds: int

    def checked(self, name: str) -> int:
        """Returns the seconds. Raises ValidationError, which names the field."""
        return check_seconds(self.seconds, name)


def check_seconds(seconds: int, name: str) -> int:
    """Returns the seconds after which a file expires. Raises ValidationError for the field of this name."""
    if not SHORTEST <= seconds <= LONGEST:
        raise ValidationError(f"`{name}` must be from {SHORTEST}, an hour, to {LONGEST}, 30 days. Given: {seconds}")
    return seconds


def store_of(request: web.Request) -> "Store":
    """Returns the server's store. Raises NoStore, or ForeignPage."""
    store = request.app.get(STORE)
    if store is None:
        raise NoStore
    if request.app[ACCESS].is_foreign_page(request):
        raise ForeignPage(request.headers[hdrs.ORIGIN])
    return store


def store_if_any(request: web.Request) -> "Store | None":
    """Returns the server's store; None if it has none, or keeps nothing for the page that asks."""
    store = request.app.get(STORE)
    return None if store is None or request.app[ACCESS].is_foreign_page(request) else store


def check_metadata(metadata: Mapping[str, str] | None) -> None:
    """Raises ValidationError for metadata that is more, or longer, than it may be."""
    if metadata is None:
        return
    if len(metadata) > MAX_PAIRS:
        raise ValidationError(f"`metadata` must have at most {MAX_PAIRS} pairs. Given: {len(metadata)}")
    for key, value in metadata.items():
        if len(key) > MAX_METADATA_KEY or len(value) > MAX_VALUE:
            raise ValidationError(f"`metadata` must have keys of at most {MAX_METADATA_KEY} characters and values of "
                                  f"at most {MAX_VALUE}. Given: {len(key)} and {len(value)}")


def known_form(kind: str, id: str, param: str | None = None) -> str:
    """Returns the id of something stored, if it can be one. Raises NotStored for other texts, which no database has to
    be asked for."""
    if not _ID.fullmatch(id):
        raise NotStored(kind, id, param)
    return id


def check_query(request: web.Request, known: Collection[str]) -> None:
    """Raises ValidationError for a parameter of the query that the route does not have."""
    for name in request.query:
        if name not in known:
            raise ValidationError(f"the parameters must be of {', '.join(known)}. Given: {ascii(name)[1:-1]:.40}")


def after_of(request: web.Request, kind: str) -> str | None:
    """Returns the id of the item behind which a page begins. Raises NotStored."""
    after = request.query.get("after")
    return None if after is None else known_form(kind, after, "after")


def limit_of(request: web.Request, most: int, default: int) -> int:
    """Returns how many items a page of a list may have. Raises ValidationError."""
    text = request.query.get("limit")
    if text is None:
        return default
    if not (re.fullmatch("[0-9]{1,6}", text) and 1 <= int(text) <= most):
        raise ValidationError(f"`limit` must be an integer from 1 to {most}. Given: {text:.40}")
    return int(text)
