"""The documentation page: Swagger UI over the OpenAPI document."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from aiohttp import hdrs, web

from penstock.router.api.http import vendored
from penstock.router.api.http.access import Access, Handler
from penstock.router.api.http.openapi import describe
from penstock.router.api.http.route import Route

_STATIC = Path(__file__).with_name("static")
_PAGE = (_STATIC / "docs.html").read_bytes()
_HEADERS = {
    # Swagger UI styles elements one by one, and draws its arrows by data: URLs; nothing comes from elsewhere.
    hdrs.CONTENT_SECURITY_POLICY: "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
                                  "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                                  "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    hdrs.CACHE_CONTROL: "no-cache",
}


class Docs:
    """Answers `GET /docs` and `GET /api-doc/openapi.json` of a server of this `version` with these `routes`."""

    def __init__(self, routes: Sequence[Route], version: str, access: Access) -> None:
        self._routes = routes
        self._version = version
        self._access = access

    async def document(self, request: web.Request) -> web.Response:
        """Answers with the OpenAPI document."""
        return web.json_response(self._document)  # orjson takes no number beyond 64 bits, and a schema has some

    async def page(self, request: web.Request) -> web.Response:
        """Answers with the page."""
        return web.Response(body=_PAGE, content_type="text/html", charset="utf-8", headers=_HEADERS)

    @cached_property
    def _document(self) -> dict[str, Any]:
        documented = [route for route in self._routes if route.tag]
        return describe(documented, self._version, self._access)


def page_routes() -> list[Route]:
    """Returns the routes of the files that the page asks for, and of the page with a slash behind it, as TGI has it."""
    files = {"start.js": _STATIC / "docs.js",
             **{name: vendored.SWAGGER_UI.file(name) for name in ("swagger-ui-bundle.js", "swagger-ui.css")}}
    return [Route("GET", "/docs/", _to_page, "The page that documents the routes.", {}, is_private=True),
            *(Route("GET", f"/docs/{name}", _file(path), "A file of that page.", {}, is_private=True)
              for name, path in files.items())]


def _file(path: Path) -> Handler:
    """Returns a handler that answers with a file."""
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.FileResponse(path, headers={hdrs.CACHE_CONTROL: "no-cache"})

    return answer


async def _to_page(request: web.Request) -> web.Response:
    raise web.HTTPPermanentRedirect("../docs")
