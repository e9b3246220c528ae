"""The OpenAPI document has every field and header of the answers of models that make vectors and scores."""

from typing import Any

import pytest

from penstock.router.api.http.route import JSON
from tests.pooling_fleet import CLASSIFIER, EMBEDDER, RERANKER, SPARSE
from tests.router.api.http.test_openapi import ROUTES, assert_described
from tests.router.api.tei.conftest import StartPooling

RANKING = {"query": "q", "texts": ["a"], "return_text": True}
SIMILARITY = {"inputs": {"source_sentence": "a", "sentences": ["b"]}}


@pytest.mark.parametrize(("facts", "requests"), [
    (EMBEDDER, [("/embed", {"inputs": "a"}), ("/embed", {"inputs": ""}), ("/embed_all", {"inputs": "a"}),
                ("/similarity", SIMILARITY), ("/", SIMILARITY), ("/tokenize", {"inputs": "a"}),
                ("/decode", {"ids": [5]}),
                ("/vertex", {"instances": [{"inputs": "a"}]}), ("/info", None), ("/rerank", RANKING)]),
    (SPARSE, [("/embed_sparse", {"inputs": "a"}), ("/invocations", {"inputs": "a"}), ("/info", None)]),
    (CLASSIFIER, [("/predict", {"inputs": "a"}), ("/predict", {"inputs": [["a"]]}), ("/info", None)]),
    (RERANKER, [("/rerank", RANKING), ("/invocations", RANKING), ("/vertex", {"instances": [RANKING]}),
                ("/info", None)]),
], ids=["embedder", "sparse", "classifier", "reranker"])
async def test_answers(start_pooling: StartPooling, facts: Any, requests: list[tuple[str, Any]]) -> None:
    server = await start_pooling(facts)
    for path, body in requests:
        method = "GET" if body is None else "POST"
        response = await server.client.request(method, path, json=body)
        reply = ROUTES[method, path].replies[response.status]
        assert_described(reply.content[JSON], await response.json())
        if path not in ("/", "/vertex", "/invocations"):  # whose headers are another's where the model generates
            assert set(reply.headers) <= {name.lower() for name in response.headers}
