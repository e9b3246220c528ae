"""The routes of vectors and scores in the shapes of OpenAI, Cohere, Jina and vLLM."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from aiohttp import web

from penstock.router.api.http.body import read_json, to_body
from penstock.router.api.http.route import JSON, Reply, Route
from penstock.router.api.openai import embeddings
from penstock.router.api.openai import replies as openai
from penstock.router.api.openai.embedding_bodies import EmbeddingBody
from penstock.router.api.openai.failures import speak_openai
from penstock.router.api.scoring import cohere_vectors, pooling, replies, reranking, scores
from penstock.router.api.scoring.bodies import ClassifyBody, CohereEmbedBody, PoolingBody, RerankBody, ScoreBody
from penstock.router.api.tei import bodies as tei_bodies
from penstock.router.api.tei import replies as tei
from penstock.router.api.tei import scores as tei_scores
from penstock.router.api.tei.handlers import respond
from penstock.router.api.tei_routes import MEASURES, TEI
from penstock.router.api.tei_routes import POOLING as TEI_REFUSALS
from penstock.router.api.tgi import replies as tgi
from penstock.router.api.usual_replies import OPENAI_GENERATING, refusing

_REFUSALS = {status: reply for status, reply in OPENAI_GENERATING.items() if status != 409}
"""An answer of these routes is none that can be gone on with."""
_NO_OTHERS: Mapping[str, str] = MappingProxyType({})


def _routes(paths: tuple[str, ...], handler: Any, summary: str, body: Any, meaning: str, content: Any, tag: str,
            headers: Mapping[str, str] = _NO_OTHERS) -> list[Route]:
    replied = refusing({200: Reply(meaning, {JSON: content}, headers), **_REFUSALS})
    return [Route("POST", path, handler, summary, replied, body, is_costly=True, tag=tag) for path in paths]


async def rerank(request: web.Request) -> web.StreamResponse:
    """Answers with documents as Cohere and Jina do, with texts as TEI does, whichever the body has."""
    content = await read_json(request)
    if isinstance(content, dict) and "documents" in content:
        speak_openai(request)
        return await reranking.answer(request, to_body(content, RerankBody))
    return await respond(request, to_body(content, tei_bodies.RerankBody), tei_scores.rerank)


_RERANK = Route(
    "POST", "/rerank", rerank, "Ranks texts as TEI does, documents as Cohere does.",
    {200: Reply("The texts or documents, the best first.", {JSON: list[tei.Rank] | replies.Ranking}, MEASURES),
     **{status: replace(reply, content={**reply.content, JSON: tgi.Error | openai.OpenAIError})
        for status, reply in {404: OPENAI_GENERATING[404], **TEI_REFUSALS}.items()}},
    tei_bodies.RerankBody | RerankBody, is_costly=True, tag=TEI)
POOLING_ROUTES = (
    _RERANK,
    *_routes(("/v1/embeddings", "/embeddings"), embeddings.embeddings, "Makes a vector of each text.", EmbeddingBody,
             "The vectors, in the order of the texts.", openai.Embeddings, "OpenAI", MEASURES),
    *_routes(("/v2/embed",), cohere_vectors.embed, "Makes a vector of each text.", CohereEmbedBody,
             "The vectors by their form, in the order of the texts.", replies.CohereVectors, "Cohere"),
    *_routes(("/v1/embed",), cohere_vectors.embed_first, "Makes a vector of each text, as the first version.",
             CohereEmbedBody, "The vectors, in the order of the texts.", replies.CohereVectors, "Cohere"),
    *_routes(("/v1/rerank", "/v2/rerank"), reranking.rerank, "Ranks documents by how well they fit a query.",
             RerankBody, "The documents, the best first.", replies.Ranking, "Cohere"),
    *_routes(("/v1/score", "/score"), scores.score, "Scores pairs of texts.", ScoreBody,
             "The scores, in the order of the pairs.", replies.Scores, "vLLM"),
    *_routes(("/classify",), pooling.classify, "Finds the class of each text.", ClassifyBody,
             "The classes, in the order of the texts.", replies.Classes, "vLLM"),
    *_routes(("/pooling",), pooling.pooling, "Gives each text's vector, its scores, or the vectors of its tokens.",
             PoolingBody, "The vectors or scores, in the order of the texts.", replies.PooledList, "vLLM"),
)
