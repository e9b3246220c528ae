"""The vectors and scores of texts, as tensors."""

import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pydantic

from penstock.contract.pooling import Task
from penstock.router.api.http.measures import Measures
from penstock.router.api.kserve.inference import (
    IDS,
    MASK,
    QUERY,
    SETTINGS,
    TEXT,
    TEXTS,
    Inference,
    Inferred,
    asked_outputs,
)
from penstock.router.api.kserve.tensors import Tensor
from penstock.router.errors import EmptyText, ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.other_fields import REFUSED_IN_POOLING, refuse_unsupported
from penstock.router.generation.parameters import UInt32
from penstock.router.generation.spec import FieldNames
from penstock.router.generation.tasks import check_reranks, check_task
from penstock.router.pooling.numbers import check_number
from penstock.router.pooling.pooled import Pooled
from penstock.router.pooling.pooling import pooled
from penstock.router.pooling.scores import activated
from penstock.router.pooling.spec import PoolingSpec
from penstock.router.shapes import Body, explain

EMBEDDING, SCORES = "embedding", "scores"
INPUTS = (TEXT, IDS, MASK)
RANKED = (QUERY, TEXTS)
_OPERATIONS = {Task.CLASSIFY: "classify", Task.EMBED: "embeddings"}


class Settings(Body):
    """The settings of vectors and scores."""

    normalize: bool = True
    dimensions: UInt32 | None = None
    truncate: bool | None = None
    prompt_name: str | None = None
    raw_scores: bool = False


async def infer(asking: Asking, inference: Inference) -> Inferred:
    """Returns the vectors of texts, their scores, or those of texts for a query. Raises RouterError."""
    started_at, service = time.monotonic(), asking.service
    is_ranking = QUERY in inference.inputs or TEXTS in inference.inputs
    known = RANKED if is_ranking else INPUTS
    _check_names(inference, known)
    settings = _settings(inference.settings(known))
    task = Task.CLASSIFY if is_ranking or Task.CLASSIFY in service.facts.tasks else Task.EMBED
    request_record.describe("rerank" if is_ranking else _OPERATIONS[task], inference.model.name)
    if not is_ranking:
        check_task(service.facts, task)
    output = SCORES if task is Task.CLASSIFY else EMBEDDING
    asked_outputs(inference, [output], [output])
    like = PoolingSpec(
        "", task, settings.truncate, prompt_name=settings.prompt_name, dimensions=settings.dimensions,
        normalized=settings.normalize, adapter=inference.model.adapter)
    specs = (_pairs if is_ranking else _texts)(inference, like)
    found = await pooled(asking, specs)
    activation = "" if settings.raw_scores or task is Task.EMBED else service.facts.activation
    headers = Measures.of(specs, found, started_at).headers(service)
    return Inferred([_joined(output, found, activation)], headers)


def _check_names(inference: Inference, known: Sequence[str]) -> None:
    for name in inference.inputs:
        if name not in (*known, SETTINGS, *Settings.model_fields):
            raise ValidationError(f"the model has no input `{name:.100}` beside {', '.join(known)}", param=name[:100])


def _settings(fields: Mapping[str, Any]) -> Settings:
    refuse_unsupported(
        {name: value for name, value in fields.items() if name not in Settings.model_fields}, REFUSED_IN_POOLING)
    try:
        return Settings.model_validate(fields)
    except pydantic.ValidationError as error:
        raise ValidationError(explain(error.errors(include_url=False)[0], fields)) from error


def _texts(inference: Inference, like: PoolingSpec) -> list[PoolingSpec]:
    prompts = inference.prompts()
    name = TEXT if TEXT in inference.inputs else IDS
    check_number(prompts, inference.model.service.limits, name)
    return [replace(like, inputs=each, names=FieldNames(inputs=name)) for each in prompts]


def _pairs(inference: Inference, like: PoolingSpec) -> list[PoolingSpec]:
    """Returns the specs of each text with the query."""
    for name in RANKED:
        if name not in inference.inputs:
            raise ValidationError(f"`{name}` must be among the inputs, for `{QUERY}` and `{TEXTS}` belong together")
    service = inference.model.service
    queries, texts = inference.texts(QUERY), inference.texts(TEXTS)
    check_number(texts, service.limits, TEXTS)
    check_reranks(service.facts)
    if len(queries) != 1:
        raise ValidationError(f"`{QUERY}` must be one text. Given: {len(queries)}")
    if not queries[0]:
        raise EmptyText(QUERY)
    return [replace(like, inputs=(queries[0], text), names=FieldNames(inputs=TEXTS)) for text in texts]


def _joined(name: str, found: Sequence[Pooled], activation: str) -> Tensor:
    """Returns the tensor with a row for each text."""
    values = array("f")
    for each in found:
        values.extend(activated(each.values, activation) if activation else each.values)
    return Tensor(name, "FP32", (len(found), len(values) // len(found)), values)
