"""Who may use the server: the API key, and what browsers are told of other sites' pages (CORS)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import hdrs, web

from penstock.router.errors import Unauthorized
from penstock.router.generation import request_record
from penstock.router.generation.identity import KEY, OUTPUT_IDS, REPEAT, RESUME
from penstock.router.keys import Keys, owner_of

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Admission = Callable[[str, str], bool]
"""Tells whether the header `Authorization`, or the key by itself that another one has, admits its sender."""
KEY_ALONE = "x-api-key"
"""The header in which Anthropic's clients send a key by itself."""

_HEADERS = ",".join(
    name.lower() for name in (hdrs.CONTENT_TYPE, hdrs.AUTHORIZATION, KEY_ALONE, RESUME, REPEAT, KEY, OUTPUT_IDS))


@dataclass(frozen=True, slots=True)
class Access:
    """The access rules of the server. Without `api_keys` anybody may generate, and without `metrics_keys` anybody may
    read the server's state; whoever may generate may read it, too. No `allowed_origins`, or a `*` in them, mean any."""

    api_keys: Keys = field(default_factory=Keys)
    metrics_keys: Keys = field(default_factory=Keys)
    allowed_origins: tuple[str, ...] = ()

    def may_generate(self, authorization: str, alone: str = "") -> bool:
        """Tells whether this header, `Bearer KEY`, or a key that came alone, has one of the API keys, if there are any.
        The request's record gets the key's name, its digest, and what is granted to it."""
        if not self.api_keys:
            return True
        given = [_bearer(authorization), alone]
        names = [self.api_keys.name_of(key) for key in given]
        record = request_record.current()
        record.key = names[0] or names[1]
        if names == [None, None]:
            return False
        record.owner = owner_of(given[0] if names[0] else given[1])
        record.grants = self.api_keys.grants_of(record.key or "")
        return True

    def may_read_state(self, authorization: str, alone: str = "") -> bool:
        """Tells whether this header, or a key that came alone, has a key for the server's state, if it needs one."""
        return not self.metrics_keys or any(
            keys.name_of(key) is not None for keys in (self.metrics_keys, self.api_keys)
            for key in (_bearer(authorization), alone))

    def may_see_use(self, authorization: str, alone: str = "") -> bool:
        """Tells whether this header, or a key that came alone, has an API key, for its own use, or a key for the
        server's state, for that of all. The request's record gets the name of an API key."""
        return (bool(self.api_keys) and self.may_generate(authorization, alone)) or (
            bool(self.metrics_keys) and self.may_read_state(authorization, alone))

    def is_foreign_page(self, request: web.Request) -> bool:
        """Tells whether a page of another site asks, where neither keys nor the list of origins say that it may.
        Browsers name the site, and keep no page from sending a form, whatever they are told of origins."""
        origin = request.headers.get(hdrs.ORIGIN)
        return not (self.api_keys or origin is None or {origin, "*"} & {*self.allowed_origins}
                    or origin.partition("://")[2] == request.headers.get(hdrs.HOST))

    @web.middleware
    async def answer_preflight(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers `OPTIONS` of any path, by which browsers ask what a page may do; as in TGI, it needs no key."""
        return _preflight(request) if request.method == hdrs.METH_OPTIONS else await handler(request)

    async def tell_origin(self, request: web.Request, response: web.StreamResponse) -> None:
        """Adds to every answer, errors and streams included, whether pages from the request's origin may read it."""
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None:
            response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = "*"
        if not self.allowed_origins or "*" in self.allowed_origins:
            if origin is not None:
                response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = "*"
            return
        response.headers.add(hdrs.VARY, "origin")  # caches keep an answer for each, whether it may be read or not
        if origin in self.allowed_origins:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin


def _preflight(request: web.Request) -> web.Response:
    """Allows the method and headers that a browser asks for. Pages send headers that no server can know before, such as
    those by which OpenAI's client names itself; a page's rights depend on its key and its origin."""
    headers = {hdrs.ACCESS_CONTROL_ALLOW_METHODS: "GET,POST", hdrs.ACCESS_CONTROL_ALLOW_HEADERS: _HEADERS}
    for name, asked in ((hdrs.ACCESS_CONTROL_ALLOW_METHODS, hdrs.ACCESS_CONTROL_REQUEST_METHOD),
                        (hdrs.ACCESS_CONTROL_ALLOW_HEADERS, hdrs.ACCESS_CONTROL_REQUEST_HEADERS)):
        value = request.headers.get(asked, "")
        if value.isascii() and value.strip():
            headers[name] = value
    response = web.Response(headers=headers)
    for asked in (hdrs.ACCESS_CONTROL_REQUEST_METHOD, hdrs.ACCESS_CONTROL_REQUEST_HEADERS):
        response.headers.add(hdrs.VARY, asked.lower())
    return response


def guard(handler: Handler, is_admitted: Admission) -> Handler:
    """Returns a handler that answers 401 to those whose key is not admitted, before it reads their body."""
    async def guarded(request: web.Request) -> web.StreamResponse:
        if not is_admitted(request.headers.get(hdrs.AUTHORIZATION, ""), request.headers.get(KEY_ALONE, "").strip()):
            raise Unauthorized
        return await handler(request)

    return guarded


def _bearer(authorization: str) -> str:
    """Returns the key of a header `Bearer KEY`, and of any other header an empty one, which nobody has."""
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


ANYBODY = Access()
"""Admits everybody to everything."""
ACCESS = web.AppKey("access", Access)
