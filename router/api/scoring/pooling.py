"""vLLM's `POST /pooling` and `/classify`: the vectors, scores and classes of texts."""

from array import array
from typing import Any

from aiohttp import web

from penstock.contract.pooling import Task
from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.openai.embeddings import written
from penstock.router.api.openai.pooling_specs import NAMES, spec_of, vector_specs
from penstock.router.api.scoring.bodies import ClassifyBody, PoolingBody
from penstock.router.api.scoring.envelope import head
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.other_fields import REFUSED_IN_POOLING, refuse_unsupported
from penstock.router.generation.service import Service
from penstock.router.generation.services import service_of
from penstock.router.pooling.numbers import check_number
from penstock.router.pooling.pooled import Pooled
from penstock.router.pooling.pooling import pooled
from penstock.router.pooling.scores import activated
from penstock.router.pooling.validation import check_numbers

_TASKS = {"embed": Task.EMBED, "classify": Task.CLASSIFY, "token_embed": Task.EMBED_ALL}


async def pooling(request: web.Request) -> web.StreamResponse:
    """Answers with the vector of each text, the vectors of its tokens or its scores, as `task` says; without it with
    what the model makes."""
    body = await read_body(request, PoolingBody)
    request_record.describe("pooling", body.model)
    with Asking(await service_of(request, body.model)) as asking:
        service = asking.service
        refuse_unsupported(body.model_extra, REFUSED_IN_POOLING)
        task = _TASKS[body.task] if body.task else _usual(service)
        if task is Task.EMBED_SPARSE:
            check_numbers(len(body.input) * service.facts.vector_size, NAMES)
        found = await pooled(asking, vector_specs(body, service, task))
        data = [{"index": index, "object": "pooling", "data": _data(each, task, body, service)}
                for index, each in enumerate(found)]
        return json_response({**head(service, body, "pool", found), "data": data})


def _usual(service: Service) -> Task:
    """Returns the task of which a model has no other one beside it that this route has."""
    return next((task for task in (Task.CLASSIFY, Task.EMBED_SPARSE) if task in service.facts.tasks), Task.EMBED)


def _data(pooled: Pooled, task: Task, body: PoolingBody, service: Service) -> Any:
    """Returns the data of a text for JSON. The vectors of tokens are one after the other in base64, and a sparse vector
    has all of its numbers."""
    values = pooled.values
    if task is Task.EMBED_SPARSE:
        values = pooled.dense(service.facts.vector_size)
    if task is Task.CLASSIFY:
        values = array("f", _scores(pooled, service, body.use_activation))
    if task is Task.EMBED_ALL and body.encoding_format != "base64":
        return [vector.tolist() for vector in pooled.of_tokens()]
    return written(values, body.encoding_format)


async def classify(request: web.Request) -> web.StreamResponse:
    """Answers with the likeliest class of each text, and the scores of all."""
    body = await read_body(request, ClassifyBody)
    request_record.describe("classify", body.model)
    with Asking(await service_of(request, body.model)) as asking:
        service = asking.service
        refuse_unsupported(body.model_extra, REFUSED_IN_POOLING)
        check_number(body.input, service.limits, "input")
        found = await pooled(asking, [spec_of(body, service, inputs, Task.CLASSIFY, NAMES) for inputs in body.input])
        data = [{"index": index, **_classified(_scores(each, service, body.use_activation), service)}
                for index, each in enumerate(found)]
        return json_response({**head(service, body, "classify", found), "data": data})


def _scores(pooled: Pooled, service: Service, is_activated: bool | None) -> list[float]:
    return pooled.values.tolist() if is_activated is False else activated(pooled.values, service.facts.activation)


def _classified(scores: list[float], service: Service) -> dict[str, Any]:
    return {"label": service.facts.labels[scores.index(max(scores))], "probs": scores, "num_classes": len(scores)}
