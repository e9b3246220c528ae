"""TGI's own routes: `POST /generate`, `POST /generate_stream` and `POST /`."""

import struct
from collections.abc import AsyncGenerator
from typing import Any

import orjson
from aiohttp import web

from router.api.answer import Answer, answering
from router.api.body import json_response, read_body
from router.api.headers import request_headers, time_headers
from router.api.schemas import CompatBody, GenerateBody
from router.api.service import SERVICE, Service
from router.api.sse import stream_events
from router.errors import RouterError
from router.stream import Ending, Event, Token
from router.validation import Asked


async def generate(request: web.Request) -> web.StreamResponse:
    """The whole answer at once."""
    body = await read_body(request, GenerateBody)
    answer, headers = await _whole_answer(request.app[SERVICE], body, _is_full_text(body, default=False))
    return json_response(answer, headers=headers)


async def generate_stream(request: web.Request) -> web.StreamResponse:
    """An event a token."""
    body = await read_body(request, GenerateBody)
    return await _stream_answer(request, body, _is_full_text(body, default=False))


async def compat_generate(request: web.Request) -> web.StreamResponse:
    """Either, as `stream` says; a whole answer comes in a list, and with its prompt unless told otherwise."""
    body = await read_body(request, CompatBody)
    is_full_text = _is_full_text(body, default=True)
    if body.stream:
        return await _stream_answer(request, body, is_full_text)
    answer, headers = await _whole_answer(request.app[SERVICE], body, is_full_text)
    return json_response([answer], headers=headers)


def _is_full_text(body: GenerateBody, default: bool) -> bool:
    asked = body.parameters.return_full_text
    return default if asked is None else asked


def _parse(body: GenerateBody) -> Asked:
    return Asked(body.inputs, body.parameters)


async def _whole_answer(
    service: Service, body: GenerateBody, is_full_text: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    async with answering(service, [_parse(body)], is_stream=False) as answers:
        tokens = [event.token async for _, event in answers]
    answer = answers.each[0]
    headers = {**request_headers(service, body.inputs), "x-compute-time": f"{answer.times.total:.9f}",
               **time_headers([answer])}
    return _render(answer, tokens, body, is_full_text), headers


def _render(answer: Answer, tokens: list[Token], body: GenerateBody, is_full_text: bool) -> dict[str, Any]:
    ending = answer.ending
    assert ending is not None
    content: dict[str, Any] = {"generated_text": body.inputs * is_full_text + ending.text}
    if body.parameters.details:
        content["details"] = {
            **_details(answer, ending), "prefill": [], "tokens": [_token(token) for token in tokens]}
    return content


async def _stream_answer(request: web.Request, body: GenerateBody, is_full_text: bool) -> web.StreamResponse:
    """The status is sent before anything is checked, as TGI does; what goes wrong is the last event."""
    service = request.app[SERVICE]
    return await stream_events(
        request, request_headers(service, body.inputs), _events(service, body, is_full_text), _render_failure)


async def _events(service: Service, body: GenerateBody, is_full_text: bool) -> AsyncGenerator[bytes]:
    async with answering(service, [_parse(body)], is_stream=True) as answers:
        index = 0
        async for answer, event in answers:
            index += 1
            yield _render_event(index, event, answer, body, is_full_text)


def _render_event(index: int, event: Event, answer: Answer, body: GenerateBody, is_full_text: bool) -> bytes:
    text = details = None
    if event.ending is not None:
        text = body.inputs * is_full_text + event.ending.text
        if body.parameters.details:
            details = {**_details(answer, event.ending), "input_length": len(answer.request.input_ids)}
    return orjson.dumps({
        "index": index, "token": _token(event.token), "generated_text": text, "details": details})


def _render_failure(error: RouterError) -> bytes:
    return orjson.dumps(error.body())


def _details(answer: Answer, ending: Ending) -> dict[str, Any]:
    """TGI's, and of the prompt's tokens those that were found in the prefix cache."""
    return {
        "finish_reason": ending.finish_reason.value, "generated_tokens": ending.num_tokens, "seed": answer.seed,
        "prefix_hit_tokens": answer.hit_tokens}


def _token(token: Token) -> dict[str, Any]:
    return {
        "id": token.id, "text": token.text, "logprob": shortest_float32(token.logprob), "special": token.is_special}


def shortest_float32(value: float) -> float:
    """The number with the fewest digits that is `value` when read as a float32; 9 digits always are."""
    packed = struct.pack("<f", value)
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == packed:
            return short
    return float(f"{value:.9g}")
