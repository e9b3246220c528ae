"""OpenAI's `POST /v1/chat/completions`, and TGI's `POST /chat_tokenize`."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from penstock.router.api.http.body import json_response, list_response, read_body
from penstock.router.api.http.headers import compute_time, request_headers, time_headers, wish_of
from penstock.router.api.http.sse import ADMITTED, NO_ANSWER, AnswerEvent, stream_events
from penstock.router.api.openai.bodies import ChatBody
from penstock.router.api.openai.chat_choice import ChatChoice
from penstock.router.api.openai.chat_spec import converse, parse
from penstock.router.api.openai.envelope import DONE, Whole, count_usage, head, usage
from penstock.router.api.openai.failures import speaks_openai
from penstock.router.api.openai.manner import Manner, manner_of
from penstock.router.chat.tools_format import CallFormat
from penstock.router.errors import Overloaded, RouterError, ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.answers import Answers, answering
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import OUTPUT_IDS, REPEAT, Identity, Wish, identify
from penstock.router.generation.other_fields import REFUSED_IN_PROMPTS, refuse_unsupported
from penstock.router.generation.service import Service, service_of
from penstock.router.generation.spec import GenerationSpec
from penstock.router.generation.text_tokens import split


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answers a conversation, whole or in chunks, as `stream` says."""
    return await answer(request, await read_body(request, ChatBody))


async def answer(request: web.Request, body: ChatBody, wish: Wish | None = None) -> web.StreamResponse:
    """Returns the response of `/v1/chat/completions` to `body`. `wish` takes the place of what the request's headers
    wish for."""
    request_record.describe("chat", body.model)
    with Asking(service_of(request, body.model)) as asking:
        wish, names = wish or wish_of(request), Manner(is_tgi=not speaks_openai(request))
        if not body.stream:
            content, headers = await whole_answer(asking, body, wish, names)
            return json_response(content, headers=headers)
        manner = manner_of(asking.service)
        try:
            async with _asked(asking, body, wish, names) as asked:
                return await stream_events(
                    request, asked.headers, _chunks(asked), manner.event, asked.identity, last=DONE,
                    waits=not manner.is_tgi)
        except Overloaded as error:
            if not manner.is_tgi:
                raise
            asking.failed(error)
            return await stream_events(request, request_headers(asking.service, ""), _fail(error), manner.event,
                                       last=DONE)


async def whole_answer(asking: Asking, body: ChatBody, wish: Wish, names: Manner | None = None) -> Whole:
    """Returns the whole answer to a conversation. Raises RouterError, which names fields in the manner of `names`,
    unless that is the server's own."""
    async with _asked(asking, body, wish, names or manner_of(asking.service)) as asked:
        start = _head(asked, "chat.completion")
        async with answering(asking, [asked.spec], asked.identity, is_stream=False,
                             num_permits=_num_permits(asking.service, body)) as answers:
            choices = _choices(asked, answers)
            async for answer, event in answers:
                choices[answer.index].note(event)
        content = {**start, "choices": [choice.whole() for choice in choices if choice.has_ended],
                   "usage": usage(answers.each, asked.spec.num_answers)}
        times = {**compute_time(answers.each), **time_headers(answers.each, asked.spec.num_answers)}
        return Whole(content, {**asked.headers, **times})


@dataclass(frozen=True, slots=True)
class _Asked:
    """A conversation that is to be answered: what is generated for it, and which answer it gets."""

    asking: Asking
    body: ChatBody
    spec: GenerationSpec
    call_format: CallFormat | None
    identity: Identity

    @property
    def headers(self) -> dict[str, str]:
        """The headers that are known before the answer begins."""
        return {**request_headers(self.asking.service, self.spec.inputs), REPEAT: self.identity.text}


@asynccontextmanager
async def _asked(asking: Asking, body: ChatBody, wish: Wish, names: Manner) -> AsyncIterator[_Asked]:
    """Holds the permits of a conversation, and reads it. The permits come first, for a prompt is work, too."""
    service = asking.service
    async with asking.permit(_num_permits(service, body)):
        spec, call_format = await parse(body, service, names)
        if wish.output_ids is not None and call_format is not None:
            raise ValidationError(f"`{OUTPUT_IDS}` is not for answers that may call tools, whose tokens have no event "
                                  "each")
        rendering = ("chat", body.model, call_format and call_format.name, bool(body.logprobs),
                     bool(body.return_token_ids))
        identity = await identify(
            service, [spec], wish, rendering, is_stream=bool(body.stream), flags=manner_of(service).flags)
        yield _Asked(asking, body, spec, call_format, identity)


def _num_permits(service: Service, body: ChatBody) -> int:
    """Returns how many permits an answer takes before its prompt is made: none if it asks for more than there can be,
    which is refused by a rule."""
    number = max(1, body.n or 1)
    return number if number <= service.limits.max_concurrent_requests else 0


async def _fail(error: RouterError) -> AsyncGenerator[AnswerEvent]:
    raise error
    yield NO_ANSWER, b""


async def chat_tokenize(request: web.Request) -> web.StreamResponse:
    """Answers with the prompt that a conversation makes, and its tokens, each with its place in the prompt."""
    body = await read_body(request, ChatBody)
    service = service_of(request, body.model)
    async with service.engine.permit():
        refuse_unsupported(body.model_extra, REFUSED_IN_PROMPTS)
        prompt, _ = await converse(body, service)
        after = b',"templated_text":' + orjson.dumps(prompt) + b"}"
        parts = split(service, prompt, bool(body.add_special_tokens))
        return await list_response(request, parts, b'{"tokenize_response":', after)


async def _chunks(asked: _Asked) -> AsyncGenerator[AnswerEvent]:
    """Yields the chunks of a stream. `stream_options` ask for the usage in a chunk of its own, or in every chunk."""
    service, spec = asked.asking.service, asked.spec
    start = orjson.dumps(_head(asked, "chat.completion.chunk"))[:-1] + b","
    options = asked.body.stream_options
    has_usage = bool(options and options.continuous_usage_stats)
    no_usage = {"usage": None} if manner_of(service).is_tgi or (options and options.include_usage) else {}
    async with answering(asked.asking, [spec], asked.identity, is_stream=True,
                         num_permits=_num_permits(service, asked.body)) as answers:
        yield ADMITTED
        choices = _choices(asked, answers)
        async for answer, event in answers:
            choice = choices[answer.index]
            for rendered in choice.chunks(event):
                chunk: dict[str, Any] = {"choices": [rendered], **no_usage}
                if has_usage:
                    chunk["usage"] = count_usage([answer], choice.num_tokens)
                yield answer.index, start + orjson.dumps(chunk)[1:]
    if options and options.include_usage:
        yield NO_ANSWER, start + orjson.dumps({"choices": [], "usage": usage(answers.each, spec.n)})[1:]


def _choices(asked: _Asked, answers: Answers) -> list[ChatChoice]:
    service = asked.asking.service
    return [ChatChoice(answer, asked.body, asked.call_format, service.tokenizer, manner_of(service),
                       f"{asked.identity.name}.{answer.index}")
            for answer in answers.each]


def _head(asked: _Asked, kind: str) -> dict[str, Any]:
    service = asked.asking.service
    answer_id = manner_of(service).answer_id("chatcmpl", asked.identity)
    request_record.name_answer(answer_id)
    return head(service, asked.body, kind, answer_id)
