"""Renders `docs/api.md` from the OpenAPI document that a server answers with."""

from collections.abc import Iterator
from typing import Any

from penstock.router.api.http.access import Access
from penstock.router.api.http.openapi import describe
from penstock.router.api.route_table import routes
from tests.paths import ROOT

PAGE = ROOT / "docs/api.md"
Schema = dict[str, Any]

HEAD = """\
# Every route

`python -m tests.pages` writes this page from the OpenAPI document. A test fails when it is not up to date. A server
answers with the document at `/api-doc/openapi.json`, and lets you try the routes at `/docs`.

Null stands for a field that is absent. With `--api-key` every `POST`, and every route of files, batches and responses,
needs the header `authorization: Bearer KEY`, or `x-api-key: KEY`.
[OpenAI's routes](openai-routes.md) says how those differ from TGI's, [Messages](messages.md) how Anthropic's are
served, and [KServe and Triton](kserve.md) how tensors are sent. [What of TGI is there](compatibility.md) lists all of
TGI's fields. Services can use gRPC instead: `protos/penstock.proto` describes it, `protos/kserve.proto` KServe's
service, and `protos/tei.proto` TEI's services, for models that make vectors or scores.
"""


def render() -> str:
    """Returns the page."""
    documented = [route for route in routes("") if route.tag]
    document = describe(documented, "", Access())
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_route(method.upper(), path, operation))
    parts = [HEAD]
    for tag, sections in by_tag.items():
        parts += [f"## {tag}\n", *sections]
    parts.append("## Types\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append("\n".join(_type(_title(name), schema)))
    return "\n".join(parts)


def _title(name: str) -> str:
    """Returns the name of a type; where several modules have one of that name, with the module's before it."""
    return ".".join(name.split("__")[-2:])


def _route(method: str, path: str, operation: Schema) -> str:
    lines = [f"### `{method} {path}`", "", operation["summary"], ""]
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]
        lines += [f"Body: {', '.join(_kind(media['schema']) for media in content.values())}", ""]
    if query := [each for each in operation.get("parameters", ()) if each["in"] == "query"]:
        lines += ["| parameter | |", "|---|---|",
                  *(f"| `{each['name']}` | {_cell(each['description'])} |" for each in query), ""]
    lines += ["| status | | body |", "|---|---|---|"]
    for status, reply in operation["responses"].items():
        bodies = "; ".join(f"{name}: {_kind(media['schema'])}" for name, media in reply.get("content", {}).items())
        lines.append(f"| {status} | {_cell(reply['description'])} | {bodies} |")
    for status, reply in operation["responses"].items():
        if status == "200" and reply.get("headers"):
            lines += ["", "Headers of an answer: " + ", ".join(f"`{name}`" for name in reply["headers"]) + "."]
    return "\n".join([*lines, ""])


def _type(name: str, schema: Schema) -> Iterator[str]:
    yield from (f"### {name}", "")
    if text := schema.get("description"):
        yield from (" ".join(text.split()), "")
    if fields := schema.get("properties"):
        yield from ("| field | type | default | |", "|---|---|---|---|")
        required = schema.get("required", [])
        for field, kind in fields.items():
            default = "required" if field in required else f"`{_json(kind['default'])}`" if "default" in kind else ""
            yield f"| `{field}` | {_kind(kind)} | {default} | {_cell(kind.get('description', ''))} |"
    else:
        yield _kind(schema)
    yield ""


def _kind(schema: Schema) -> str:
    """Returns the type that a schema describes, in a few words."""
    if "$ref" in schema:
        title = _title(schema["$ref"].rpartition("/")[2])
        return f"[{title}](#{title.lower().replace('.', '')})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            kinds = dict.fromkeys(_kind(kind) for kind in schema[several] if kind.get("type") != "null")
            return " or ".join(kinds) or "null"
    if "const" in schema:
        return f"`{_json(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{_json(value)}`" for value in schema["enum"])
    if "contentSchema" in schema:
        return _kind(schema["contentSchema"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if schema.get("type") == "object" and "data" in schema.get("properties", {}):
        return f"events of {_kind(schema['properties']['data'])}"
    bounds = [f"{word} {schema[key]}" for key, word in (
        ("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<")) if key in schema]
    return " ".join([schema.get("type", "any"), ", ".join(bounds)]).strip()


def _json(value: Any) -> str:
    return {True: "true", False: "false", None: "null"}.get(value, str(value)) if not isinstance(value, list | dict) \
        else str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
