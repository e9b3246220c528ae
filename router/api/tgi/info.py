"""The routes about the server and about a text: `/info`, `/metrics`, `/tokenize`."""

import asyncio
from typing import Any

from aiohttp import web

from penstock.router.api.http.body import json_response, list_response, read_body
from penstock.router.api.tgi.bodies import GenerateBody
from penstock.router.generation.service import Service
from penstock.router.generation.services import SERVICES, service_of
from penstock.router.generation.text_tokens import split
from penstock.router.metrics.metrics import CONTENT_TYPE


async def info(request: web.Request) -> web.Response:
    """Answers with all that `describe` tells."""
    return json_response(describe(await service_of(request)))


def describe(service: Service) -> dict[str, Any]:
    """Returns the fields of `/info`: TGI's fields, those that it had until version 3, the formats and kernels that
    decide every bit of an answer, whether an answer depends on nothing else that is in the batch, whether equal
    beginnings of texts are computed once, and who computes the model.

    `waiting_served_ratio` and `max_waiting_tokens` are 0: since prefill is chunked, a request waits for neither.
    """
    limits, facts = service.limits, service.facts
    return {
        "model_id": service.info.model_id,
        "model_sha": service.info.model_sha,
        "model_pipeline_tag": None,
        "max_concurrent_requests": limits.max_concurrent_requests,
        "max_best_of": limits.max_best_of,
        "max_stop_sequences": limits.max_stop_sequences,
        "max_input_tokens": limits.max_input_tokens,
        "max_total_tokens": limits.max_total_tokens,
        "validation_workers": limits.validation_workers,
        "max_client_batch_size": limits.max_client_batch_size,
        "router": "text-generation-router",
        "version": service.info.version,
        "sha": None,
        "docker_label": None,
        "model_dtype": facts.dtype,
        "model_device_type": "cuda" if facts.has_gpus else "cpu",
        "waiting_served_ratio": 0.0,
        "max_batch_total_tokens": facts.capacity,
        "max_waiting_tokens": 0,
        "max_batch_size": limits.max_slots,
        "numerics": facts.numerics,
        "deterministic": facts.is_deterministic,
        "prefix_caching": facts.shares_prefixes,
        "model_implementation": facts.implementation,
    }


async def metrics(request: web.Request) -> web.Response:
    """Answers with the metrics in Prometheus's text format."""
    body = await asyncio.to_thread(request.app[SERVICES].exposition)
    return web.Response(body=body, headers={"content-type": CONTENT_TYPE})


async def tokenize(request: web.Request) -> web.StreamResponse:
    """Answers with the tokens of `inputs`, each with its place in the text."""
    body = await read_body(request, GenerateBody)
    service = await service_of(request)
    async with service.engine.permit():
        return await list_response(request, split(service, body.inputs))
