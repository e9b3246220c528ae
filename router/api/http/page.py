"""The playground: one static page, for browsers that ask for `/`."""

import re
from pathlib import Path

from aiohttp import hdrs, web

from penstock.router.api.http import vendored
from penstock.router.api.http.access import Handler
from penstock.router.api.http.route import Route

_FOLDER = Path(__file__).with_name("static") / "page"
_TEXT = (_FOLDER / "index.html").read_bytes()
_FILES = {**{path.name: path for path in _FOLDER.iterdir() if path.suffix in (".js", ".css")},
          "marked.js": vendored.MARKED.file("marked.esm.js"), "purify.js": vendored.DOMPURIFY.file("purify.es.mjs")}
"""The files that the page loads. The vendored ones are absent where they could not be fetched."""
_HTML = "text/html"

_HEADERS = {
    # This server's files and nobody else's; the page talks to this server alone, no other page may frame it, and only
    # the library that purifies HTML may make elements of a text.
    hdrs.CONTENT_SECURITY_POLICY: "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                                  "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                                  "require-trusted-types-for 'script'; trusted-types dompurify",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    hdrs.CACHE_CONTROL: "no-cache",
    hdrs.VARY: "accept",
}


async def page(request: web.Request) -> web.Response:
    """Answers with the page. It holds no secret, so it takes no key; the routes that it calls do."""
    return web.Response(body=_TEXT, content_type=_HTML, charset="utf-8", headers=_HEADERS)


async def _file(request: web.Request) -> web.StreamResponse:
    """Answers with one of the page's files, none of which holds a secret either."""
    path = _FILES.get(request.match_info["name"])
    if path is None or not path.is_file():
        raise web.HTTPNotFound
    return web.FileResponse(path, headers={hdrs.CACHE_CONTROL: "no-cache", "x-content-type-options": "nosniff"})


FILES = Route("GET", "/page/{name}", _file, "A file of the page for browsers.", {})


def for_browsers(others: Handler) -> Handler:
    """Returns a handler that gives browsers the page, and leaves everybody else to `others`."""
    async def choose(request: web.Request) -> web.StreamResponse:
        return await (page if wants_page(request) else others)(request)

    return choose


def wants_page(request: web.Request) -> bool:
    """Tells whether the client prefers HTML to anything else: browsers name it first, probes do not name it."""
    kinds = [_weighed(kind) for kind in request.headers.get(hdrs.ACCEPT, "").split(",")]
    best, weight = max(kinds, key=lambda kind: kind[1])  # the first of equals
    return best == _HTML and weight > 0


def _weighed(kind: str) -> tuple[str, float]:
    """Returns a media type and its `q`, which is 0 if it can't be read."""
    name, *parameters = (part.strip().lower() for part in kind.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            return name, float(parameter[2:]) if re.fullmatch(r"[01](\.\d*)?", parameter[2:]) else 0.0
    return name, 1.0
