"""The headers that are passed on to a server elsewhere, and those of its answers that its clients get. None has a key,
and none that is not known to have to do with the model is passed on."""

from collections.abc import Mapping

from aiohttp import hdrs, web

from penstock.router import request_id
from penstock.router.generation import request_record

_ASKED = ("accept", "anthropic-beta", "anthropic-version", "last-event-id", "openai-beta", "traceparent", "tracestate",
          "user-agent", "x-session-id")
_TOLD = ("cache-control", "content-encoding", "content-type", "openai-model", "openai-processing-ms", "openai-version",
         "penstock-output-ids", "retry-after")
_TOLD_PREFIXES = ("anthropic-ratelimit-", "x-compute-", "x-ratelimit-")


def to_source(request: web.Request) -> dict[str, str]:
    """Returns the headers of the request to a server elsewhere, by which its log and its spans belong to this one's."""
    headers = {name: request.headers[name] for name in _ASKED if name in request.headers}
    if context := request_record.current().context:
        headers["traceparent"] = f"00-{context[:16].hex()}-{context[16:].hex()}-01"
    return {hdrs.ACCEPT: "*/*", **headers, hdrs.CONTENT_TYPE: "application/json", hdrs.ACCEPT_ENCODING: "identity",
            request_id.HEADER: request_id.current() or ""}


def to_client(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of an answer that are passed on."""
    lowered = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in lowered.items() if name in _TOLD or name.startswith(_TOLD_PREFIXES)}
