"""What OpenAI's routes share: how an answer begins and ends, what it cost, how a failure is told."""

import time
from collections.abc import Sequence
from typing import Any

import orjson
from aiohttp import web

from penstock.router.api.http.body import json_response
from penstock.router.engine.stream import Ending
from penstock.router.errors import RouterError, ValidationError
from penstock.router.generation.answers import Answer
from penstock.router.generation.service import Service
from penstock.router.scheduling.plan import FinishReason
from penstock.router.tracing import request_trace as trace

DONE = b"[DONE]"
"""The last event of a stream."""


def head(service: Service, model: str | None, kind: str) -> dict[str, Any]:
    """What a whole answer and every chunk begin with. `model`: as asked for; any name is served, and told again.

    `kind` is the value of `object`.
    """
    info = service.info
    return {
        "object": kind,
        "id": "",
        "created": int(time.time()),
        "model": info.model_id if model in (None, "tgi") else model,
        "system_fingerprint": f"{info.version}-native",
    }


def usage(answers: Sequence[Answer], per_prompt: int = 1) -> dict[str, Any]:
    """Of answers that have ended, in the order of their indices, `per_prompt` to each prompt: a prompt counts once."""
    return count_usage(answers, sum(answer.ending.num_tokens for answer in answers if answer.ending), per_prompt)


def count_usage(answers: Sequence[Answer], num_tokens: int, per_prompt: int = 1) -> dict[str, Any]:
    """Of answers with `num_tokens` so far. Cached are those of the prompt that were not computed anew."""
    prompts = answers[::per_prompt]
    num_prompt_tokens = sum(len(answer.request.input_ids) for answer in prompts)
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_tokens,
        "total_tokens": num_prompt_tokens + num_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(answer.hit_tokens for answer in prompts)},
    }


def finish_reason(ending: Ending) -> str:
    """TGI's word, but OpenAI's for the model's own end token."""
    return "stop" if ending.finish_reason is FinishReason.EOS_TOKEN else ending.finish_reason.value


def refuse(service: Service, error: RouterError) -> web.Response:
    """Before anything is generated or streamed, so with a status of its own for a stream too.

    TGI's own refusals are in TGI's shape, ours in OpenAI's, whose message its client shows.
    """
    service.metrics.requested()
    service.metrics.failed(error)
    trace.failed(error)
    return json_response(_failure(error) if isinstance(error, ValidationError) else error.body(), status=error.status)


def render_failure(error: RouterError) -> bytes:
    """The event before the last of a stream that fails."""
    return orjson.dumps(_failure(error))


def _failure(error: RouterError) -> dict[str, Any]:
    return {"error": {"message": str(error), "http_status_code": error.status}}
