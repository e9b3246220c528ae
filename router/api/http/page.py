"""The playground: one static page, for browsers that ask for `/`."""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from aiohttp import hdrs, web

from penstock.router.api.http.access import Handler

_PAGE = Path(__file__).with_name("static") / "index.html"
_TEXT = _PAGE.read_bytes()
_HTML = "text/html"


def _inline(element: str) -> str:
    """Returns the hashes by which a policy names the contents of the page's elements of this kind."""
    contents = re.findall(rf"<{element}>(.*?)</{element}>".encode(), _TEXT, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(content).digest()).decode()}'" for content in contents)


_HEADERS = {
    # The page's own code and nobody else's; it talks to this server alone, and no other page may frame it.
    hdrs.CONTENT_SECURITY_POLICY: f"default-src 'none'; script-src {_inline('script')}; style-src {_inline('style')}; "
                                  "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                                  "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    hdrs.CACHE_CONTROL: "no-cache",
    hdrs.VARY: "accept",
}


async def page(request: web.Request) -> web.Response:
    """Answers with the page. It holds no secret, so it takes no key; the routes that it calls do."""
    return web.Response(body=_TEXT, content_type=_HTML, charset="utf-8", headers=_HEADERS)


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
