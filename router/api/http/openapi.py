"""The OpenAPI document of the routes, made from the types that parse their bodies, and a page to read it."""

import html
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter

from penstock.router.api.http.route import EVENTS, JSON, Content, Route

_REFERENCE = "#/components/schemas/{model}"


class Docs:
    """`GET /api-doc/openapi.json` and `GET /docs` of a server of this `version` with these `routes`."""

    def __init__(self, routes: Sequence[Route], version: str) -> None:
        self._routes = routes
        self._version = version

    async def document(self, request: web.Request) -> web.Response:
        return web.json_response(self._document)

    async def page(self, request: web.Request) -> web.Response:
        return web.Response(text=self._page, content_type="text/html")

    @cached_property
    def _document(self) -> dict[str, Any]:
        return describe(self._routes, self._version)

    @cached_property
    def _page(self) -> str:
        return render(self._document)


def describe(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    types = list({repr(kind): kind for kind in _types(routes)}.values())
    schemas, definitions = TypeAdapter.json_schemas(
        [(repr(kind), "validation", TypeAdapter(kind)) for kind in types], ref_template=_REFERENCE)
    by_type = {name: schema for (name, _), schema in schemas.items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": version,
                 "description": "Text Generation Inference's routes, and OpenAI's.",
                 "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer",
                                        "description": "Needed where the server has an API key."}}},
    }


def _types(routes: Sequence[Route]) -> Iterable[Any]:
    for route in routes:
        if route.body is not None:
            yield route.body
        for reply in route.replies.values():
            yield from reply.content.values()


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{route.path.replace('/', '_').replace('-', '_')}",
        "responses": {
            str(status): {
                "description": reply.meaning,
                **({"headers": {name: {"description": text, "schema": {"type": "string"}}
                                for name, text in reply.headers.items()}} if reply.headers else {}),
                **({"content": _content(reply.content, schemas)} if reply.content else {})}
            for status, reply in sorted(route.replies.items())},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _content({JSON: route.body}, schemas)}
    if route.is_costly:
        operation["security"] = [{"key": []}, {}]
    return operation


def _content(content: Content, schemas: dict[str, Any]) -> dict[str, Any]:
    return {media: {"schema": _event(schemas[repr(kind)]) if media == EVENTS else schemas[repr(kind)]}
            for media, kind in content.items()}


def _event(data: dict[str, Any]) -> dict[str, Any]:
    """An event of a stream, of which `data` describes the JSON; OpenAI's streams end with another one."""
    content = {"type": "string", "contentMediaType": JSON, "contentSchema": data}
    return {"type": "object", "required": ["data"], "properties": {"data": {"anyOf": [{"const": "[DONE]"}, content]}}}


_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;
background:#fff}code,pre{font-family:ui-monospace,monospace}pre{overflow:auto;background:#f4f4f4;padding:.7rem}
summary{cursor:pointer;padding:.2rem 0}b{display:inline-block;width:3.5rem}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}pre{background:#242424}a{color:#8bf}}"""


def render(document: dict[str, Any]) -> str:
    """A page of the document, without scripts."""
    routes = "".join(_section(method, path, operation) for path, methods in document["paths"].items()
                     for method, operation in methods.items())
    schemas = "".join(f'<details id="{_text(name)}"><summary><code>{_text(name)}</code></summary>{_code(schema)}'
                      "</details>" for name, schema in document["components"]["schemas"].items())
    info = document["info"]
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{_text(info['title'])}: routes</title><style>{_STYLE}</style>"
            f"<h1>{_text(info['title'])} {_text(info['version'])}</h1><p>{_text(info['description'])} The same as "
            f'<a href="api-doc/openapi.json">OpenAPI document</a>.</p><h2>Routes</h2>{routes}'
            f"<h2>Types</h2>{schemas}</html>")


def _section(method: str, path: str, operation: dict[str, Any]) -> str:
    replies = "".join(f"<li>{status}: {_text(reply['description'])} {_links(reply.get('content', {}))}</li>"
                      for status, reply in operation["responses"].items())
    body = operation.get("requestBody", {}).get("content", {})
    return (f"<details><summary><b>{method.upper()}</b><code>{_text(path)}</code> {_text(operation['summary'])}"
            f"</summary>{f'<p>Body: {_links(body)}</p>' if body else ''}<ul>{replies}</ul></details>")


def _links(content: dict[str, Any]) -> str:
    """Media types, each with the types it holds."""
    parts = []
    for media, what in content.items():
        links = " or ".join(f'<a href="#{_text(name)}"><code>{_text(name)}</code></a>'
                            for name in _names(what["schema"]))
        parts.append(f"{_text(media)} {links}")
    return ", ".join(parts)


def _names(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        found = [schema["$ref"].rpartition("/")[2]] if "$ref" in schema else []
        return found + [name for value in schema.values() for name in _names(value)]
    return [name for item in schema for name in _names(item)] if isinstance(schema, list) else []


def _code(schema: Any) -> str:
    return f"<pre>{_text(json.dumps(schema, indent=2))}</pre>"


def _text(text: str) -> str:
    return html.escape(text)
