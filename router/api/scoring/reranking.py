"""Cohere's and Jina's `POST /v1/rerank` and `/v2/rerank`: documents by how well they fit a query."""

from typing import Any

from aiohttp import web

from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.openai.pooling_specs import named, usage
from penstock.router.api.scoring.bodies import RerankBody
from penstock.router.api.scoring.envelope import answer_id, meta
from penstock.router.api.scoring.pairs import check, scored
from penstock.router.errors import NotTokenized
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.services import service_of
from penstock.router.pooling.numbers import num_permits
from penstock.router.pooling.scores import ranked
from penstock.router.text.encoding import TokenizerError

_DOCUMENTS_PER_UNIT = 100
"""For how many documents Cohere counts a search."""


async def rerank(request: web.Request) -> web.StreamResponse:
    """Answers with the documents, the best first."""
    return await answer(request, await read_body(request, RerankBody))


async def answer(request: web.Request, body: RerankBody) -> web.StreamResponse:
    """Returns the response to a body of documents."""
    request_record.describe("rerank", body.model)
    with Asking(await service_of(request, body.model)) as asking:
        check(asking.service, body, body.documents, "documents")
        version = "1" if request.path.startswith("/v1/") else "2"
        return json_response(await _whole_answer(asking, body, version))


async def _whole_answer(asking: Asking, body: RerankBody, version: str) -> dict[str, Any]:
    query, documents = await _cut(asking, body)
    found = await scored(asking, body, [(query, document) for document in documents], ("query", "documents"))
    return {
        "id": answer_id("rerank"), "model": named(body, asking.service),
        "results": [_result(body, index, found.scores[index]) for index in ranked(found.scores)[:body.top_n or None]],
        "usage": usage(found.made_of),
        "meta": meta(found.made_of, version, {"search_units": -(-len(documents) // _DOCUMENTS_PER_UNIT)})}


async def _cut(asking: Asking, body: RerankBody) -> tuple[str, list[str]]:
    """Returns the query and the documents without what is behind the most tokens that either may have."""
    async def cut(text: str, most: int | None, field: str) -> str:
        try:
            return text if most is None else await asking.service.tokenizer.beginning(text, most)
        except TokenizerError as error:
            raise NotTokenized(str(error), field) from error

    async with asking.permit(num_permits(len(body.documents), asking.service.limits)):
        return (await cut(body.query, body.max_tokens_per_query, "query"),
                [await cut(document, body.max_tokens_per_doc, "documents") for document in body.documents])


def _result(body: RerankBody, index: int, score: float) -> dict[str, Any]:
    document = {"document": {"text": body.documents[index]}} if body.return_documents else {}
    return {"index": index, "relevance_score": score, **document}
