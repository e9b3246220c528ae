"""OpenAI's `POST /v1/embeddings`: a vector for each text."""

import time
from array import array
from binascii import b2a_base64
from typing import Any

from aiohttp import web

from penstock.contract.pooling import Task
from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.http.measures import Measures
from penstock.router.api.openai.embedding_bodies import EmbeddingBody
from penstock.router.api.openai.envelope import Whole
from penstock.router.api.openai.pooling_specs import named, usage, vector_specs
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Wish
from penstock.router.generation.other_fields import REFUSED_IN_POOLING, refuse_unsupported
from penstock.router.generation.services import service_of
from penstock.router.pooling.pooling import pooled

OPERATION = "embeddings"
"""The name that the semantic conventions have for it."""


async def embeddings(request: web.Request) -> web.StreamResponse:
    """Answers with a vector for each text."""
    body = await read_body(request, EmbeddingBody)
    request_record.describe(OPERATION, body.model)
    with Asking(await service_of(request, body.model)) as asking:
        content, headers = await whole_answer(asking, body, Wish())
        return json_response(content, headers=headers)


async def whole_answer(asking: Asking, body: EmbeddingBody, wish: Wish) -> Whole:
    """Returns the whole answer to a body. Raises RouterError."""
    started_at, service = time.monotonic(), asking.service
    refuse_unsupported(body.model_extra, REFUSED_IN_POOLING)
    specs = vector_specs(body, service, Task.EMBED)
    found = await pooled(asking, specs)
    data = [{"object": "embedding", "index": index, "embedding": written(each.values, body.encoding_format)}
            for index, each in enumerate(found)]
    return Whole({"object": "list", "data": data, "model": named(body, service), "usage": usage(found)},
                 Measures.of(specs, found, started_at).headers(service))


def written(vector: "array[float]", encoding_format: str | None) -> Any:
    """Returns a vector as JSON has it: a list of numbers, or the base64 of little-endian float32 ones."""
    return b2a_base64(vector, newline=False).decode() if encoding_format == "base64" else vector.tolist()
