"""Anthropic's `POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from collections.abc import AsyncGenerator
from typing import Any

import orjson
from aiohttp import web

from penstock.router.api.anthropic.blocks import assembled
from penstock.router.api.anthropic.bodies import CountBody, MessagesBody
from penstock.router.api.anthropic.failures import anthropic_event
from penstock.router.api.anthropic.message import MessageEvents
from penstock.router.api.anthropic.message_turn import dialogue_of, turn_of
from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.http.headers import compute_time, request_headers, time_headers, wish_of
from penstock.router.api.http.sse import ADMITTED, AnswerEvent, EventStyle, stream_events
from penstock.router.errors import ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.answers import Answers
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import OUTPUT_IDS, REPEAT, Wish
from penstock.router.generation.services import service_of
from penstock.router.turns.asked import Asked, ask

_STYLE = EventStyle(
    anthropic_event, failure_name=b"error", ping=b'event: ping\ndata: {"type": "ping"}\n\n', waits=True)


async def messages(request: web.Request) -> web.StreamResponse:
    """Answers a conversation, whole or by events, as `stream` says."""
    body, wish = await read_body(request, MessagesBody), wish_of(request)
    request_record.describe("chat", body.model)
    with Asking(await service_of(request, body.model)) as asking:
        async with ask(asking, lambda: turn_of(body, asking.service), _checked(wish),
                       ("messages", body.model, _shows_thoughts(body)), is_stream=bool(body.stream)) as asked:
            headers = {**request_headers(asking.service, asked.spec.inputs), REPEAT: asked.identity.text}
            if body.stream:
                return await stream_events(request, headers, _streamed(asked, body), _STYLE, asked.identity)
            async with asked.answering() as answers:
                message = _message(asked, body, answers)
                events = [event async for _, token in answers for event in message.events(token)]
            times = {**compute_time(answers.each), **time_headers(answers.each)}
            return json_response(assembled(events), headers={**headers, **times})


async def count_tokens(request: web.Request) -> web.Response:
    """Answers with the number of tokens of the prompt that a conversation makes."""
    body = await read_body(request, CountBody)
    service = await service_of(request, body.model)
    async with service.engine.permit():
        number = await dialogue_of(body, service).num_tokens(service)
    return json_response({"input_tokens": number})


async def _streamed(asked: Asked, body: MessagesBody) -> AsyncGenerator[AnswerEvent]:
    async with asked.answering() as answers:
        yield ADMITTED
        message = _message(asked, body, answers)
        async for _, token in answers:
            for event in message.events(token):
                yield AnswerEvent(0, orjson.dumps(event), event["type"].encode())


def _message(asked: Asked, body: MessagesBody, answers: Answers) -> MessageEvents:
    [reader] = asked.readers(answers)
    return MessageEvents(reader, _head(asked, body), body.max_tokens, _shows_thoughts(body))


def _head(asked: Asked, body: MessagesBody) -> dict[str, Any]:
    """Returns the fields of a message that are known before its first token. No edits are made to the conversation,
    which is told to those who ask for some."""
    message_id = asked.identity.openai_id("msg").replace("-", "_")
    request_record.name_answer(message_id)
    model = asked.asking.service.info.model_id if body.model == "tgi" else body.model
    edits: dict[str, Any] = {"context_management": {"applied_edits": []}} if body.context_management else {}
    return {"id": message_id, "model": model, **edits}


def _shows_thoughts(body: MessagesBody) -> bool:
    return body.thinking is None or body.thinking.display != "omitted"


def _checked(wish: Wish) -> Wish:
    """Returns the wish; refuses one that brings an answer's tokens, whose ids no event tells."""
    if wish.output_ids is not None:
        raise ValidationError(f"`{OUTPUT_IDS}` is not for messages, whose events are not those of tokens")
    return wish
