"""OpenAI's `POST /v1/chat/completions`, and TGI's `POST /chat_tokenize`."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
from aiohttp import web

from penstock.router.api.http.body import json_response, list_response, read_body
from penstock.router.api.http.headers import compute_time, request_headers, time_headers, wish_of
from penstock.router.api.http.sse import ADMITTED, NO_ANSWER, AnswerEvent, EventStyle, stream_events
from penstock.router.api.openai.asked_choice import AskedChoice
from penstock.router.api.openai.bodies import ChatBody
from penstock.router.api.openai.chat_spec import dialogue_of, turn_of
from penstock.router.api.openai.envelope import DONE, Whole, count_usage, head, usage
from penstock.router.api.openai.failures import speaks_openai
from penstock.router.api.openai.manner import Manner, manner_of
from penstock.router.api.openai.prompt_logprobs import told_prompt_logprobs
from penstock.router.errors import Overloaded, RouterError
from penstock.router.generation import request_record
from penstock.router.generation.answers import Answers
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import REPEAT, Wish
from penstock.router.generation.other_fields import REFUSED_IN_PROMPTS, refuse_unsupported
from penstock.router.generation.services import service_of
from penstock.router.generation.text_tokens import split
from penstock.router.turns.asked import Asked, ask


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answers a conversation, whole or in chunks, as `stream` says."""
    return await answer(request, await read_body(request, ChatBody))


async def answer(request: web.Request, body: ChatBody, wish: Wish | None = None) -> web.StreamResponse:
    """Returns the response of `/v1/chat/completions` to `body`. `wish` takes the place of what the request's headers
    wish for."""
    request_record.describe("chat", body.model)
    with Asking(await service_of(request, body.model)) as asking:
        wish, names = wish or wish_of(request), Manner(is_tgi=not speaks_openai(request))
        if not body.stream:
            content, headers = await whole_answer(asking, body, wish, names)
            return json_response(content, headers=headers)
        manner = manner_of(asking.service)
        style = EventStyle(manner.event, last=DONE, waits=not manner.is_tgi)
        try:
            async with _asked(asking, body, wish, names) as asked:
                return await stream_events(
                    request, _headers(asked), _chunks(asked, body), style, asked.identity)
        except Overloaded as error:
            if not manner.is_tgi:
                raise
            asking.failed(error)
            return await stream_events(request, request_headers(asking.service, ""), _fail(error), style)


async def whole_answer(asking: Asking, body: ChatBody, wish: Wish, names: Manner | None = None) -> Whole:
    """Returns the whole answer to a conversation. Raises RouterError, which names fields in the manner of `names`,
    unless that is the server's own."""
    async with _asked(asking, body, wish, names or manner_of(asking.service)) as asked:
        start = _head(asked, body, "chat.completion")
        async with asked.answering() as answers:
            choices = _choices(asked, body, answers)
            async for answer, event in answers:
                choices[answer.index].note(event)
        content = {**start, "choices": [choice.whole() for choice in choices if choice.has_ended],
                   "usage": usage(answers.each, asked.spec.num_answers, _num_thoughts(asked, choices)),
                   **await told_prompt_logprobs(answers.each[0], body, asking.service.tokenizer)}
        times = {**compute_time(answers.each), **time_headers(answers.each, asked.spec.num_answers)}
        return Whole(content, {**_headers(asked), **times})


def _asked(asking: Asking, body: ChatBody, wish: Wish, names: Manner) -> AbstractAsyncContextManager[Asked]:
    service = asking.service
    return ask(
        asking, lambda: turn_of(body, service.limits, names), wish,
        ("chat", body.model, bool(body.logprobs), bool(body.return_token_ids), body.prompt_logprobs,
         bool(body.return_tokens_as_token_ids), bool(body.echo), bool(body.functions),
         *(["no reasoning"] if body.include_reasoning is False else ())),
        num_answers=max(1, body.n or 1), is_stream=bool(body.stream), flags=manner_of(service).flags)


def _headers(asked: Asked) -> dict[str, str]:
    """Returns the headers that are known before the answer begins."""
    return {**request_headers(asked.asking.service, asked.spec.inputs), REPEAT: asked.identity.text}


async def _fail(error: RouterError) -> AsyncGenerator[AnswerEvent]:
    raise error
    yield ADMITTED


async def chat_tokenize(request: web.Request) -> web.StreamResponse:
    """Answers with the prompt that a conversation makes, and its tokens, each with its place in the prompt."""
    body = await read_body(request, ChatBody)
    service = await service_of(request, body.model)
    async with service.engine.permit():
        refuse_unsupported(body.model_extra, REFUSED_IN_PROMPTS)
        prompt, _ = await dialogue_of(body).written(service)
        after = b',"templated_text":' + orjson.dumps(prompt) + b"}"
        parts = split(service, prompt, bool(body.add_special_tokens))
        return await list_response(request, parts, b'{"tokenize_response":', after)


async def _chunks(asked: Asked, body: ChatBody) -> AsyncGenerator[AnswerEvent]:
    """Yields the chunks of a stream. `stream_options` ask for the usage in a chunk of its own, or in every chunk."""
    start = orjson.dumps(_head(asked, body, "chat.completion.chunk"))[:-1] + b","
    options = body.stream_options
    has_usage = bool(options and options.continuous_usage_stats)
    is_tgi = manner_of(asked.asking.service).is_tgi
    no_usage = {"usage": None} if is_tgi or (options and options.include_usage) else {}
    async with asked.answering() as answers:
        yield ADMITTED
        choices = _choices(asked, body, answers)
        async for answer, event in answers:
            choice = choices[answer.index]
            for rendered in choice.chunks(event):
                chunk: dict[str, Any] = {"choices": [rendered], **no_usage}
                if has_usage:
                    chunk["usage"] = count_usage([answer], choice.num_tokens, 1, _num_thoughts(asked, [choice]))
                yield AnswerEvent(answer.index, start + orjson.dumps(chunk)[1:])
    if options and options.include_usage:
        last = {"choices": [], "usage": usage(answers.each, asked.spec.n, _num_thoughts(asked, choices))}
        yield AnswerEvent(NO_ANSWER, start + orjson.dumps(last)[1:])


def _num_thoughts(asked: Asked, choices: Sequence[AskedChoice]) -> int | None:
    """Returns how many tokens of the answers are thoughts; None if the model does not think."""
    if asked.form.thinking is None:
        return None
    return sum(choice.num_thinking_tokens for choice in choices)


def _choices(asked: Asked, body: ChatBody, answers: Answers) -> list[AskedChoice]:
    service = asked.asking.service
    return [AskedChoice(reader, body, service.tokenizer, manner_of(service)) for reader in asked.readers(answers)]


def _head(asked: Asked, body: ChatBody, kind: str) -> dict[str, Any]:
    service = asked.asking.service
    answer_id = manner_of(service).answer_id("chatcmpl", asked.identity)
    request_record.name_answer(answer_id)
    return head(service, body, kind, answer_id)
