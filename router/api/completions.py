"""OpenAI's `POST /v1/completions`, as TGI answers it: one prompt, one choice."""

import time
from collections.abc import AsyncGenerator
from typing import Any

import orjson
from aiohttp import web

from router.api.answer import Answer, answering
from router.api.body import json_response, read_body
from router.api.headers import request_headers, time_headers
from router.api.schemas import CompletionBody, Parameters
from router.api.service import SERVICE, Service
from router.api.sse import stream_events
from router.errors import RouterError, ValidationError
from router.scheduling.plan import FinishReason
from router.stream import Ending, Event
from router.validation import Asked

_NEUTRAL: dict[str, tuple[object, ...]] = {
    # OpenAI's
    "n": (1,), "best_of": (1,), "echo": (False,), "logprobs": (), "logit_bias": ({}, []), "frequency_penalty": (0,),
    "presence_penalty": (0,), "response_format": ({"type": "text"},),
    # vLLM's, for sampling and stopping
    "top_k": (0, -1), "min_p": (0,), "min_tokens": (0,), "length_penalty": (1,), "use_beam_search": (False,),
    "bad_words": ([],), "allowed_token_ids": (), "stop_token_ids": ([],), "logits_processors": ([],),
    "structured_outputs": (), "guided_json": (), "guided_regex": (), "guided_choice": (), "guided_grammar": (),
    # vLLM's, for the prompt and the form of the answer
    "prompt_embeds": (), "add_special_tokens": (True,), "truncate_prompt_tokens": (), "prompt_logprobs": (),
    "skip_special_tokens": (True,), "spaces_between_special_tokens": (True,), "include_stop_str_in_output": (False,),
    "return_token_ids": (False,), "return_tokens_as_token_ids": (False,),
    # vLLM's, for how it is served
    "priority": (0,), "cache_salt": (), "kv_transfer_params": (),
}
"""Fields that would change an answer and are not built yet, each with the values that ask for nothing."""

DONE = b"[DONE]"


class SuffixNotSupported(RouterError):
    """TGI's words for a prompt that is to be filled in."""

    status = 422
    error_type = "suffix not supported"
    metric = "validation"

    def __init__(self) -> None:
        super().__init__("Suffix is not supported and can be achieved by preprocessing the prompt.")


async def completions(request: web.Request) -> web.StreamResponse:
    """A whole answer, or a chunk a token, as `stream` says."""
    body = await read_body(request, CompletionBody)
    service = request.app[SERVICE]
    try:
        asked = parse(body)
    except RouterError as error:
        return _refuse(service, error)
    if not body.stream:
        return await _whole_answer(service, body, asked)
    return await stream_events(
        request, request_headers(service, body.prompt[0]), _chunks(service, body, asked), _render_failure, last=DONE)


def parse(body: CompletionBody) -> Asked:
    """What the body asks for. RouterError names a field that asks for what is not built yet."""
    _check_supported(body)
    is_greedy = body.temperature == 0
    return Asked(
        inputs=body.prompt[0],
        parameters=Parameters(
            temperature=None if is_greedy else body.temperature,
            repetition_penalty=body.repetition_penalty,
            top_p=None if body.top_p == 1 else body.top_p,
            do_sample=not is_greedy,
            max_new_tokens=body.max_tokens,
            stop=body.stop,
            seed=body.seed,
            ignore_eos=bool(body.ignore_eos)),
        is_greedy=is_greedy,
        keep_stop=False)


def _check_supported(body: CompletionBody) -> None:
    fields = body.model_extra or {}
    if fields.get("suffix"):
        raise SuffixNotSupported
    for name, value in fields.items():
        neutral = _NEUTRAL.get(name)
        if neutral is not None and value is not None and value not in neutral:
            other = f", other than {orjson.dumps(neutral[0]).decode()}," if neutral else ""
            raise ValidationError(f"`{name}`{other} is not supported yet")
    if body.stream_options and body.stream_options.continuous_usage_stats:
        raise ValidationError("`stream_options.continuous_usage_stats` is not supported yet")
    if len(body.prompt) > 1 or not isinstance(body.prompt[0], str):
        raise ValidationError("`prompt` must be one string, lists of prompts and token ids are not supported yet")


async def _whole_answer(service: Service, body: CompletionBody, asked: Asked) -> web.Response:
    head = _head(service, body)
    async with answering(service, [asked], is_stream=False) as answers:
        async for _ in answers:
            pass
    answer = answers.each[0]
    headers = {**request_headers(service, body.prompt[0]), **time_headers([answer])}
    return json_response(_render(head, answer), headers=headers)


async def _chunks(service: Service, body: CompletionBody, asked: Asked) -> AsyncGenerator[bytes]:
    """A chunk a token; the last one tells the usage, unless it is asked for in a chunk of its own."""
    head = _head(service, body)
    has_usage_chunk = bool(body.stream_options and body.stream_options.include_usage)
    num_given = 0
    async with answering(service, [asked], is_stream=True) as answers:
        async for answer, event in answers:
            chunk = {**head, "choices": [_render_event(event, num_given)]}
            if has_usage_chunk:
                chunk["usage"] = None
            elif event.ending is not None:
                chunk["usage"] = _usage(answer, event.ending)
            yield orjson.dumps(chunk)
            num_given += len(event.token.text)
    if has_usage_chunk:
        assert answer.ending is not None
        yield orjson.dumps({**head, "choices": [], "usage": _usage(answer, answer.ending)})


def _head(service: Service, body: CompletionBody) -> dict[str, Any]:
    """What a whole answer and every chunk begin with."""
    info = service.info
    return {
        "object": "text_completion",
        "id": "",
        "created": int(time.time()),
        "model": info.model_id if body.model in (None, "tgi") else body.model,
        "system_fingerprint": f"{info.version}-{info.docker_label or 'native'}",
    }


def _render(head: dict[str, Any], answer: Answer) -> dict[str, Any]:
    ending = answer.ending
    assert ending is not None
    reason = "stop" if ending.finish_reason is FinishReason.EOS_TOKEN else ending.finish_reason.value
    return {**head, "choices": [_choice(ending.text, reason)], "usage": _usage(answer, ending)}


def _render_event(event: Event, num_given: int) -> dict[str, Any]:
    """`num_given` characters of the answer came before. The last event brings what was held for a stop string."""
    if event.ending is None:
        return _choice(event.token.text, "")
    return _choice(event.ending.text[num_given:], event.ending.finish_reason.value)


def _choice(text: str, finish_reason: str) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


def _usage(answer: Answer, ending: Ending) -> dict[str, int]:
    prompt_tokens = len(answer.request.input_ids)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": ending.num_tokens,
        "total_tokens": prompt_tokens + ending.num_tokens,
    }


def _refuse(service: Service, error: RouterError) -> web.Response:
    """A status of its own for a stream too; in OpenAI's shape, which its client shows, but for TGI's own refusal."""
    service.metrics.requested()
    service.metrics.failed(error)
    body = error.body() if isinstance(error, SuffixNotSupported) else _failure(error)
    return json_response(body, status=error.status)


def _failure(error: RouterError) -> dict[str, Any]:
    return {"error": {"message": str(error), "http_status_code": error.status}}


def _render_failure(error: RouterError) -> bytes:
    return orjson.dumps(_failure(error))
