"""The OpenAPI document of the routes, made from the types that parse their bodies."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import TypeAdapter

from penstock.router.api.http.access import Access
from penstock.router.api.http.route import EVENTS, JSON, Content, Route, admission

_REFERENCE = "#/components/schemas/{model}"
_KEY = {"key": {"type": "http", "scheme": "bearer", "description": "A key of the server."}}


def describe(routes: Sequence[Route], version: str, access: Access) -> dict[str, Any]:
    """Returns the document, OpenAPI 3.1; `access` says which routes take a key."""
    types = list({repr(kind): kind for kind in _types(routes)}.values())
    schemas, definitions = TypeAdapter.json_schemas(
        [(repr(kind), "validation", TypeAdapter(kind)) for kind in types], ref_template=_REFERENCE)
    by_type = {name: schema for (name, _), schema in schemas.items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.canonical, {})[route.method.lower()] = _operation(route, by_type, access)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": version,
                 "description": "The routes of Text Generation Inference, Text Embeddings Inference, OpenAI, "
                                "Anthropic and KServe, for one model. A model has those of what it does.",
                 "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": definitions.get("$defs", {}),
                       **({"securitySchemes": _KEY} if any(admission(route, access) for route in routes) else {})},
    }


def _types(routes: Sequence[Route]) -> Iterable[Any]:
    for route in routes:
        if route.body is not None:
            yield route.body
        for reply in route.replies.values():
            yield from reply.content.values()


def _operation(route: Route, schemas: dict[str, Any], access: Access) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [route.tag],
        "summary": route.summary.replace("`", ""),  # which Swagger UI shows as it is, unlike descriptions
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-z0-9]', '_', route.canonical)}",
        "responses": {
            str(status): {
                "description": reply.meaning,
                **({"headers": {name: {"description": text, "schema": {"type": "string"}}
                                for name, text in reply.headers.items()}} if reply.headers else {}),
                **({"content": _content(reply.content, schemas)} if reply.content else {})}
            for status, reply in sorted(route.replies.items())},
    }
    if route.body is not None:
        content = _content({route.media: route.body}, schemas)
        operation["requestBody"] = {"required": route.needs_body, "content": content}
    variables = re.findall(r"\{(\w+)\}", route.canonical)
    if variables or route.query:
        operation["parameters"] = [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in variables),
            *({"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
              for name, text in route.query.items())]
    if admission(route, access):
        operation["security"] = [{"key": []}]
    return operation


def _content(content: Content, schemas: dict[str, Any]) -> dict[str, Any]:
    return {media: {"schema": _event(schemas[repr(kind)]) if media == EVENTS else schemas[repr(kind)]}
            for media, kind in content.items()}


def _event(data: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a stream's event whose JSON is described by `data`; OpenAI's streams end with `[DONE]`."""
    content = {"type": "string", "contentMediaType": JSON, "contentSchema": data}
    return {"type": "object", "required": ["data"], "properties": {"data": {"anyOf": [{"const": "[DONE]"}, content]}}}
