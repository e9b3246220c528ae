"""Makes specs of vectors and scores of the bodies that ask for them, and tells what they have used."""

from collections.abc import Iterable
from typing import Any

from penstock.contract.pooling import Task
from penstock.router.api.openai.embedding_bodies import PooledBody, VectorBody
from penstock.router.generation.service import Service
from penstock.router.generation.spec import FieldNames
from penstock.router.pooling.numbers import check_number
from penstock.router.pooling.pooled import Pooled
from penstock.router.pooling.spec import PoolingSpec


def spec_of(
    body: PooledBody, service: Service, inputs: str | tuple[int, ...] | tuple[str, str], task: Task, names: FieldNames,
    **more: Any,
) -> PoolingSpec:
    """Returns the spec of one text or pair that a body asks about, with `more` of its fields."""
    most = body.truncate_prompt_tokens
    return PoolingSpec(
        inputs=inputs,
        task=task,
        truncates=None if most is None else True,
        keeps_end=body.truncation_side == "left",
        max_tokens=None if most == -1 else most,
        adds_special_tokens=body.add_special_tokens is not False,
        adapter=service.adapters.named(body.model),
        priority=body.priority,
        salt=body.cache_salt,
        names=names,
        **more)


def vector_specs(body: VectorBody, service: Service, task: Task) -> list[PoolingSpec]:
    """Returns the spec of each text of a body. Raises TooManyTexts."""
    check_number(body.input, service.limits, "input")
    return [spec_of(body, service, inputs, task, NAMES, prompt_name=body.prompt_name, dimensions=body.dimensions,
                    normalized=body.is_normalized) for inputs in body.input]


NAMES = FieldNames(inputs="input", truncate="truncate_prompt_tokens")
"""The names of fields of bodies with `input`."""


def usage(found: Iterable[Pooled]) -> dict[str, Any]:
    """Returns the usage of all texts together."""
    number = sum(each.num_tokens for each in found)
    return {"prompt_tokens": number, "total_tokens": number}


def named(body: PooledBody, service: Service) -> str:
    """Returns the name by which an answer calls the model: that by which it was asked for."""
    return service.info.model_id if body.model in (None, "tgi") else str(body.model)
