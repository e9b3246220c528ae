"""The parts that answers of several routes share: the ids and heads of vLLM's, and what Cohere's tell of tokens."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.router import request_id
from penstock.router.api.openai.embedding_bodies import PooledBody
from penstock.router.api.openai.pooling_specs import named, usage
from penstock.router.generation import request_record
from penstock.router.generation.service import Service
from penstock.router.pooling.pooled import Pooled


def answer_id(prefix: str) -> str:
    """Returns the id of the answer to this request, which names the request, too."""
    name = f"{prefix}-{(request_id.current() or '').removeprefix('req_')}"
    request_record.name_answer(name)
    return name


def meta(found: Sequence[Pooled], version: str, units: Mapping[str, int]) -> dict[str, Any]:
    """Returns how many tokens were read, and the `units` that Cohere counts, as this version of its API tells it."""
    return {"api_version": {"version": version}, "billed_units": units,
            "tokens": {"input_tokens": usage(found)["prompt_tokens"]}}


def head(service: Service, body: PooledBody, prefix: str, found: Sequence[Pooled]) -> dict[str, Any]:
    """Returns all of an answer but its data."""
    return {"id": answer_id(prefix), "object": "list", "created": int(time.time()), "model": named(body, service),
            "usage": usage(found)}
