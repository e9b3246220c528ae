"""The scores of texts: of their classes, and by how well they fit a query."""

import time
from collections.abc import Sequence
from typing import Any

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router.api.http.measures import Measures, Told
from penstock.router.api.tei.bodies import PredictBody, RerankBody, Sequences
from penstock.router.errors import EmptyText, WrongModel
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.spec import FieldNames
from penstock.router.generation.tasks import check_reranks, check_task
from penstock.router.pooling.numbers import check_number
from penstock.router.pooling.pooling import pooled
from penstock.router.pooling.scores import activated, ranked
from penstock.router.pooling.spec import PoolingSpec

Predictions = list[dict[str, Any]]
_OWN = "identity"
"""The activation of models whose scores are shown as they are, which TEI does not know."""


async def predict(asking: Asking, body: PredictBody) -> Told[list[Predictions]]:
    """Returns for each text or pair the scores of all labels, the highest first. Raises RouterError."""
    started_at, service = time.monotonic(), asking.service
    request_record.describe("classify", None)
    check_task(service.facts, Task.CLASSIFY, WrongModel)
    sequences: Sequences = body.inputs
    check_number(sequences.each, service.limits, "inputs")
    specs = [PoolingSpec(each, Task.CLASSIFY, body.truncate, body.keeps_end, adapter=body.adapter_id)
             for each in sequences.each]
    found = await pooled(asking, specs)
    activation = _activation(body, service.facts)
    most = None if body.parameters is None else body.parameters.top_k
    return Told([_predictions(each.values, activation, service.facts.labels)[:most] for each in found],
                Measures.of(specs, found, started_at))


async def rerank(asking: Asking, body: RerankBody) -> Told[list[dict[str, Any]]]:
    """Returns the places of texts, the one that fits the query best first. Raises RouterError."""
    started_at, service = time.monotonic(), asking.service
    request_record.describe("rerank", None)
    check_number(body.texts, service.limits, "texts")
    check_reranks(service.facts, WrongModel)
    if not body.query:
        raise EmptyText("query")
    specs = [PoolingSpec((body.query, text), Task.CLASSIFY, body.truncate, body.keeps_end, adapter=body.adapter_id,
                         names=FieldNames(inputs="texts")) for text in body.texts]
    found = await pooled(asking, specs)
    activation = "" if body.raw_scores else activation_of(service.facts)
    scores = [activated(each.values, activation)[0] for each in found]
    texts = [{"text": text} if body.return_text else {} for text in body.texts]
    return Told([{"index": place, **texts[place], "score": scores[place]} for place in ranked(scores)],
                Measures.of(specs, found, started_at))


def activation_of(facts: Facts) -> str:
    """Returns the activation of scores that are not raw: the model's own, or TEI's where it has none."""
    if facts.activation != _OWN:
        return facts.activation
    return "sigmoid" if len(facts.labels) == 1 else "softmax"


def _activation(body: PredictBody, facts: Facts) -> str:
    """Returns the activation that a request asks for; no score changes by that of an empty name."""
    if body.parameters is not None and body.parameters.function_to_apply is not None:
        return body.parameters.function_to_apply
    return "" if body.raw_scores else activation_of(facts)


def _predictions(raw: Sequence[float], activation: str, labels: Sequence[str]) -> Predictions:
    scores = activated(raw, activation)
    return [{"score": scores[place], "label": labels[place]} for place in ranked(scores)]
