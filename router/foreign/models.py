"""All models of a server that others answer for, which have one pool of connections."""

from collections import UserDict
from collections.abc import Sequence
from typing import Self

import aiohttp

from penstock.router.foreign.model import ForeignModel
from penstock.router.foreign_settings import ForeignSettings

IDLE_SECONDS = 4.0
"""For how long a connection is kept for the next request: less than uvicorn's 5 seconds, after which a server may end
it while the request is on its way."""


class ForeignModels(UserDict[str | None, ForeignModel]):
    """The models by name. They are closed with the server."""

    _session: aiohttp.ClientSession | None = None

    @classmethod
    def open(cls, settings: Sequence[ForeignSettings]) -> Self:
        """Makes them, inside an event loop. Cookies of one client's answer are not sent for another, and answers stay
        compressed as they are."""
        models = cls()
        if settings:
            models._session = session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
            models.update({each.name: ForeignModel(each, session) for each in settings})
        return models

    async def close(self) -> None:
        """Ends all connections."""
        if self._session is not None:
            await self._session.close()


NONE = ForeignModels()
"""Those of a server without any."""
