"""Servers, of models that make text and of others, and what they tell."""

import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson

from tests.router.api.conftest import Server
from tests.router.api.tei.conftest import StartPooling, start_pooling

__all__ = ["StartPooling", "start_pooling"]
BASE = "/v2/models/demo"
Ask = Callable[[Server, str, object], Awaitable[Any]]


async def told(server: Server, path: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON of an answer, to a GET where there is no body."""
    response = await (server.client.get(path) if body is None else server.post(path, body))
    return response.status, await response.json()


def tensor(name: str, datatype: str, shape: Sequence[int], data: object) -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def text(*texts: str) -> dict[str, object]:
    return tensor("text_input", "BYTES", [len(texts)], list(texts))


def packed(*texts: str) -> bytes:
    """The binary form of texts."""
    return b"".join(struct.pack("<I", len(each.encode())) + each.encode() for each in texts)


async def infer_binary(
    server: Server, content: Mapping[str, object], data: bytes, path: str = f"{BASE}/infer"
) -> tuple[dict[str, Any], bytes]:
    """The JSON of an answer to JSON with data behind it, and what is behind the answer's."""
    header = orjson.dumps(content)
    response = await server.client.post(path, data=header + data, headers={
        "Inference-Header-Content-Length": str(len(header)), "content-type": "application/octet-stream"})
    answer = await response.read()
    assert response.status == 200, answer
    length = int(response.headers.get("Inference-Header-Content-Length", len(answer)))
    return orjson.loads(answer[:length]), answer[length:]
