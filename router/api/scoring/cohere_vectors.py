"""Cohere's `POST /v2/embed` and `/v1/embed`: a vector for each text, in several forms."""

from array import array
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from penstock.contract.pooling import Task
from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.openai.embeddings import OPERATION, written
from penstock.router.api.openai.pooling_specs import usage
from penstock.router.api.scoring.bodies import CohereEmbedBody
from penstock.router.api.scoring.envelope import answer_id, meta
from penstock.router.errors import ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.other_fields import REFUSED_IN_POOLING, refuse_unsupported
from penstock.router.generation.service import Service
from penstock.router.generation.services import service_of
from penstock.router.generation.spec import FieldNames
from penstock.router.pooling.numbers import check_number
from penstock.router.pooling.pooling import pooled
from penstock.router.pooling.spec import PoolingSpec


def _signs(vector: "array[float]") -> bytes:
    """Returns a bit for each number, which says whether it is above 0, the first as the highest of a byte."""
    text = "".join("1" if number > 0 else "0" for number in vector)
    return int(text.ljust(-(-len(text) // 8) * 8, "0"), 2).to_bytes(-(-len(text) // 8), "big")


_FORMS: Mapping[str, Callable[["array[float]"], Any]] = {
    "float": lambda vector: written(vector, "float"),
    "base64": lambda vector: written(vector, "base64"),
    "ubinary": lambda vector: list(_signs(vector)),
    "binary": lambda vector: [byte - 128 for byte in _signs(vector)],
}
_PROMPTS = {"search_query": ("query", "search_query"),
            "search_document": ("document", "passage", "corpus", "search_document"),
            "classification": ("classification",), "clustering": ("clustering",)}
"""The names of a checkpoint's prompts by the kinds of texts."""


async def embed(request: web.Request) -> web.StreamResponse:
    """Answers with the vectors of all texts, by their form, as the second version of Cohere's API has them."""
    return await _answer(request, is_first=False)


async def embed_first(request: web.Request) -> web.StreamResponse:
    """Answers as the first version of Cohere's API: with plain vectors, unless a form is asked for."""
    return await _answer(request, is_first=True)


async def _answer(request: web.Request, is_first: bool) -> web.Response:
    body = await read_body(request, CohereEmbedBody)
    request_record.describe(OPERATION, body.model)
    with Asking(await service_of(request, body.model)) as asking:
        refuse_unsupported(body.model_extra, REFUSED_IN_POOLING)
        texts, field = _texts(body)
        check_number(texts, asking.service.limits, field)
        prompt_name = _prompt_name(body, asking.service)
        found = await pooled(asking, [_spec(body, asking.service, text, field, prompt_name) for text in texts])
        is_plain = is_first and not body.embedding_types
        forms = {form: [_FORMS[form](each.values) for each in found] for form in body.embedding_types or ["float"]}
        return json_response({
            "id": answer_id("embd"), "texts": texts, "embeddings": forms["float"] if is_plain else forms,
            "response_type": "embeddings_floats" if is_plain else "embeddings_by_type",
            "meta": meta(found, "1" if is_first else "2", {"input_tokens": usage(found)["prompt_tokens"]})})


def _texts(body: CohereEmbedBody) -> tuple[list[str], str]:
    """Returns the texts, and the name of their field. Raises ValidationError."""
    if (body.texts is None) == (body.inputs is None):
        given = "none" if body.texts is None else "both"
        raise ValidationError(f"`texts` or `inputs` must be given. Given: {given}", "missing_required_parameter")
    if body.texts is not None:
        return body.texts, "texts"
    return ["\n".join(part.text for part in each.content) for each in body.inputs or ()], "inputs"


def _prompt_name(body: CohereEmbedBody, service: Service) -> str | None:
    """Returns the name of the checkpoint's prompt for texts of this kind. Documents need none. Raises ValidationError
    where the checkpoint has prompts, and none for this kind."""
    if body.input_type is None or not service.prompts:
        return None
    names = {name.lower(): name for name in service.prompts}
    found = next((names[name] for name in _PROMPTS[body.input_type] if name in names), None)
    if found is None and body.input_type != "search_document":
        raise ValidationError(
            f"`input_type` must be one for which the checkpoint has a prompt; its prompts are for "
            f"{', '.join(f'`{name}`' for name in service.prompts)}. Given: `{body.input_type}`")
    return found


def _spec(body: CohereEmbedBody, service: Service, text: str, field: str, prompt_name: str | None) -> PoolingSpec:
    return PoolingSpec(
        inputs=text, task=Task.EMBED, truncates=body.truncate != "NONE", keeps_end=body.truncate == "START",
        max_tokens=body.max_tokens, prompt_name=prompt_name, dimensions=body.output_dimension,
        adapter=service.adapters.named(body.model), priority=body.priority,
        names=FieldNames(inputs=field, truncate="max_tokens", dimensions="output_dimension"))
