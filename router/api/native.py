"""TGI's own routes: `POST /generate`, `POST /generate_stream` and `POST /`."""

import struct
from contextlib import suppress
from typing import Any

import orjson
from aiohttp import web

from router.api.answer import Answer, answering
from router.api.body import json_response, read_body
from router.api.failures import to_router_error
from router.api.schemas import CompatBody, GenerateBody
from router.api.service import SERVICE, Service
from router.api.sse import EventWriter
from router.stream import Ending, Event, Token


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


async def _whole_answer(
    service: Service, body: GenerateBody, is_full_text: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    tokens = []
    async with answering(service, body, is_stream=False) as answer:
        async for event in answer:
            tokens.append(event.token)
    ending = answer.ending
    assert ending is not None
    content: dict[str, Any] = {"generated_text": body.inputs * is_full_text + ending.text}
    if body.parameters.details:
        content["details"] = {
            **_details(answer, ending), "prefill": [], "tokens": [_token(token) for token in tokens]}
    return content, {**_headers(service, body), **_time_headers(answer, ending)}


async def _stream_answer(request: web.Request, body: GenerateBody, is_full_text: bool) -> web.StreamResponse:
    """The status is sent before anything is checked, as TGI does; what goes wrong is the last event."""
    service = request.app[SERVICE]
    writer = EventWriter(request, _headers(service, body))
    with suppress(ConnectionError):  # the client has left, nobody is to be told
        async with writer:
            try:
                async with answering(service, body, is_stream=True) as answer:
                    index = 0
                    async for event in answer:
                        index += 1
                        await writer.send(_event(index, event, answer, body, is_full_text))
            except ConnectionError:
                raise
            except Exception as error:
                await writer.send(orjson.dumps(to_router_error(error).body()))
    return writer.response


def _event(index: int, event: Event, answer: Answer, body: GenerateBody, is_full_text: bool) -> bytes:
    text = details = None
    if event.ending is not None:
        text = body.inputs * is_full_text + event.ending.text
        if body.parameters.details:
            details = {**_details(answer, event.ending), "input_length": len(answer.request.input_ids)}
    return orjson.dumps({
        "index": index, "token": _token(event.token), "generated_text": text, "details": details})


def _details(answer: Answer, ending: Ending) -> dict[str, Any]:
    return {
        "finish_reason": ending.finish_reason.value, "generated_tokens": ending.num_tokens, "seed": answer.seed}


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


def _headers(service: Service, body: GenerateBody) -> dict[str, str]:
    return {"x-compute-type": service.info.compute_type, "x-compute-characters": str(len(body.inputs))}


def _time_headers(answer: Answer, ending: Ending) -> dict[str, str]:
    """Milliseconds, but for `x-compute-time`, which is seconds."""
    times = answer.times
    milliseconds = {
        "x-total-time": times.total,
        "x-validation-time": times.validation,
        "x-queue-time": times.queue,
        "x-inference-time": times.inference,
        "x-time-per-token": times.inference / ending.num_tokens,
    }
    return {
        "x-compute-time": f"{times.total:.9f}",
        "x-prompt-tokens": str(len(answer.request.input_ids)),
        "x-generated-tokens": str(ending.num_tokens),
        **{name: str(int(1000 * seconds)) for name, seconds in milliseconds.items()},
    }
