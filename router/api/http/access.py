"""Who may use the server: the API key, and what browsers are told of other sites' pages (CORS)."""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import hdrs, web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_PREFLIGHT = {
    hdrs.ACCESS_CONTROL_ALLOW_METHODS: "GET,POST",
    # TGI allows the first alone, so that no page could send the key.
    hdrs.ACCESS_CONTROL_ALLOW_HEADERS: "content-type,authorization",
}


@dataclass(frozen=True, slots=True)
class Access:
    """`api_key`: None where there is none. `allowed_origins`: empty, or with a `*` in it, is any."""

    api_key: str | None = field(default=None, repr=False)
    allowed_origins: tuple[str, ...] = ()

    def admits(self, authorization: str) -> bool:
        """Whether who sends this, as `Bearer KEY`, knows the key, if there is one. The time tells nothing of it."""
        if self.api_key is None:
            return True
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(_to_bytes(given.strip()), _to_bytes(self.api_key))

    def guard(self, handler: Handler) -> Handler:
        """`handler` for those who know the key; 401 for others, before their body is read."""
        if self.api_key is None:
            return handler

        async def guarded(request: web.Request) -> web.StreamResponse:
            if not self.admits(request.headers.get(hdrs.AUTHORIZATION, "")):
                raise web.HTTPUnauthorized
            return await handler(request)

        return guarded

    @web.middleware
    async def answer_preflight(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """As in TGI, `OPTIONS` of any path asks what a page may do, and needs no key."""
        return web.Response(headers=_PREFLIGHT) if request.method == hdrs.METH_OPTIONS else await handler(request)

    async def tell_origin(self, request: web.Request, response: web.StreamResponse) -> None:
        """Of every answer to a page, errors and streams included: whether pages from its origin may read it."""
        origin = request.headers.get(hdrs.ORIGIN)
        if not self.allowed_origins or "*" in self.allowed_origins:
            if origin is not None:
                response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = "*"
            return
        response.headers.add(hdrs.VARY, "origin")  # caches keep an answer for each, whether it may be read or not
        if origin in self.allowed_origins:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin


def _to_bytes(text: str) -> bytes:
    """As it came: header values that are no UTF-8 are decoded with surrogates."""
    return text.encode("utf-8", "surrogateescape")
