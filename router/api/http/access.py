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
    """What the server admits. `api_key` is None where no key is needed; no `allowed_origins`, or a `*` in them, mean
    any."""

    api_key: str | None = field(default=None, repr=False)
    allowed_origins: tuple[str, ...] = ()

    def admits(self, authorization: str) -> bool:
        """Tells whether this header, `Bearer KEY`, has the server's key, if it has one; how long it takes reveals
        nothing."""
        if self.api_key is None:
            return True
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(_to_bytes(given.strip()), _to_bytes(self.api_key))

    def guard(self, handler: Handler) -> Handler:
        """Returns a handler that answers 401 to those without the key, before it reads their body."""
        if self.api_key is None:
            return handler

        async def guarded(request: web.Request) -> web.StreamResponse:
            if not self.admits(request.headers.get(hdrs.AUTHORIZATION, "")):
                raise web.HTTPUnauthorized
            return await handler(request)

        return guarded

    @web.middleware
    async def answer_preflight(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers `OPTIONS` of any path, by which browsers ask what a page may do; as in TGI, it needs no key."""
        return web.Response(headers=_PREFLIGHT) if request.method == hdrs.METH_OPTIONS else await handler(request)

    async def tell_origin(self, request: web.Request, response: web.StreamResponse) -> None:
        """Adds to every answer, errors and streams included, whether pages from the request's origin may read it."""
        origin = request.headers.get(hdrs.ORIGIN)
        if not self.allowed_origins or "*" in self.allowed_origins:
            if origin is not None:
                response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = "*"
            return
        response.headers.add(hdrs.VARY, "origin")  # caches keep an answer for each, whether it may be read or not
        if origin in self.allowed_origins:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin


def _to_bytes(text: str) -> bytes:
    """Returns a header's bytes as they came: aiohttp decodes values that are not UTF-8 with surrogates."""
    return text.encode("utf-8", "surrogateescape")
