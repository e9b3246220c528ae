"""Which routes a model has."""

from dataclasses import replace

import pytest

from penstock.contract.pooling import Task
from penstock.router.api.pooling_routes import POOLING_ROUTES
from penstock.router.api.tei_routes import TEI_ROUTES
from penstock.router.errors import WrongTask
from penstock.router.generation.tasks import check_reranks, check_task, reranks, routes_of
from tests.fakes import FACTS
from tests.pooling_fleet import SPARSE

EMBEDDER = replace(FACTS, tasks=frozenset({Task.EMBED, Task.EMBED_ALL}), vector_size=4)
RERANKER = replace(FACTS, tasks=frozenset({Task.CLASSIFY}), labels=("LABEL_0",))
CLASSIFIER = replace(RERANKER, labels=("good", "bad"))


def test_what_a_model_does_is_let_pass() -> None:
    check_task(FACTS, Task.GENERATE)
    check_task(EMBEDDER, Task.EMBED_ALL)
    check_task(CLASSIFIER, Task.CLASSIFY)
    check_reranks(RERANKER)
    assert [reranks(facts) for facts in (FACTS, EMBEDDER, RERANKER, CLASSIFIER)] == [False, False, True, False]


def test_a_refusal_names_the_routes_that_the_model_has() -> None:
    with pytest.raises(WrongTask) as error:
        check_task(FACTS, Task.EMBED)
    assert error.value.reason == ("the model makes no vectors of texts; it has /generate, /v1/completions, "
                                  "/v1/chat/completions, /v1/responses, /v1/messages")
    assert (error.value.status, error.value.code, error.value.param) == (422, "model_not_supported", "model")
    with pytest.raises(WrongTask, match=r"no text; it has /v1/embeddings, .*, /v1/score, /pooling, /embed_all$"):
        check_task(EMBEDDER, Task.GENERATE)
    with pytest.raises(WrongTask, match=r"it has /rerank, .*, /v1/score, /predict, /classify, /pooling$"):
        check_task(RERANKER, Task.EMBED_SPARSE)
    with pytest.raises(WrongTask, match=r"ranks no documents; it has /predict, /classify, /pooling$"):
        check_reranks(CLASSIFIER)


def test_every_route_of_vectors_and_scores_is_named_for_some_model() -> None:
    """All but those of every model, and second names."""
    named = {path for facts in (EMBEDDER, RERANKER, CLASSIFIER, SPARSE) for path in routes_of(facts)}
    assert named == {route.path for route in (*POOLING_ROUTES, *TEI_ROUTES)} - {"/decode", "/embeddings", "/score"}
