"""The store, as handlers find it, and the rules that files and batches share."""

import asyncio
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

from aiohttp import hdrs, web

from penstock.router.api.http.access import Access
from penstock.router.errors import ValidationError
from penstock.router.shapes import Body
from penstock.router.store.errors import ForeignPage, NoStore, NotStored

if TYPE_CHECKING:
    from penstock.router.store.store import Store  # which imports SQLAlchemy

STORE = web.AppKey["Store"]("store")
ACCESS = web.AppKey("access", Access)
UPLOADS = web.AppKey("uploads", asyncio.Semaphore)
"""The places of files that are received at once."""
DOWNLOADS = web.AppKey("downloads", asyncio.Semaphore)
"""The places of parts of files that are sent at once."""

SHORTEST, LONGEST = 3600, 30 * 24 * 3600
"""The least and the most seconds after which a file may expire."""
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


def known_form(kind: str, id: str, param: str | None = None) -> str:
    """Returns the id of a file or a batch, if it can be one. Raises NotStored for other texts, which no database has to
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
