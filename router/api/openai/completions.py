"""OpenAI's `POST /v1/completions`: any number of prompts, any number of answers to each."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import orjson
from aiohttp import web

from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.http.headers import request_headers, time_headers, wish_of
from penstock.router.api.http.sse import ADMITTED, NO_ANSWER, AnswerEvent, EventStyle, stream_events
from penstock.router.api.openai.bodies import CompletionBody
from penstock.router.api.openai.completion_choice import Choice, Prompt
from penstock.router.api.openai.completion_spec import is_prompt_only, parse
from penstock.router.api.openai.envelope import DONE, Whole, count_usage, head
from penstock.router.api.openai.manner import manner_of
from penstock.router.api.openai.prompt_logprobs import told_prompt_logprobs
from penstock.router.engine.stream import Event, Token
from penstock.router.generation import request_record
from penstock.router.generation.answer import Answer
from penstock.router.generation.answers import Answers, answering, tokens_of
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import REPEAT, Identity, Wish, identify
from penstock.router.generation.ranking import best_first
from penstock.router.generation.service import Service
from penstock.router.generation.services import service_of
from penstock.router.generation.spec import GenerationSpec

_KIND = "text_completion"


async def completions(request: web.Request) -> web.StreamResponse:
    """Completes prompts, whole or a chunk per token, as `stream` says."""
    return await answer(request, await read_body(request, CompletionBody))


async def answer(request: web.Request, body: CompletionBody) -> web.StreamResponse:
    """Returns the response of `/v1/completions` to `body`."""
    request_record.describe("text_completion", body.model)
    with Asking(await service_of(request, body.model)) as asking:
        wish = wish_of(request)
        if not body.stream:
            content, headers = await whole_answer(asking, body, wish)
            return json_response(content, headers=headers)
        specs, identity = await _read(asking.service, body, wish)
        manner = manner_of(asking.service)
        style = EventStyle(manner.event, last=DONE, waits=not manner.is_tgi)
        return await stream_events(
            request, _headers(asking.service, body, identity), _chunks(asking, body, specs, identity), style, identity)


async def _read(service: Service, body: CompletionBody, wish: Wish) -> tuple[list[GenerationSpec], Identity]:
    """Returns what is generated for each prompt, and which answers they get. Raises RouterError."""
    specs = parse(body, service)
    rendering = (_KIND, body.model, body.logprobs is not None, bool(body.echo), bool(body.return_token_ids),
                 body.prompt_logprobs, bool(body.return_tokens_as_token_ids))
    return specs, await identify(
        service, specs, wish, rendering, is_stream=bool(body.stream), flags=manner_of(service).flags)


def _headers(service: Service, body: CompletionBody, identity: Identity) -> dict[str, str]:
    """Returns the headers that are known before the answers begin."""
    return {**request_headers(service, *body.prompt), REPEAT: identity.text}


async def whole_answer(asking: Asking, body: CompletionBody, wish: Wish) -> Whole:
    """Returns the whole answers to all prompts. Raises RouterError."""
    service = asking.service
    specs, identity = await _read(service, body, wish)
    start = _head(service, body, identity)
    async with answering(asking, specs, identity, is_stream=False) as answers:
        tokens = await tokens_of(answers)
    choices: list[dict[str, Any]] = []
    num_candidates = specs[0].num_answers
    for prompt in range(len(specs)):
        candidates = answers.each[prompt * num_candidates:][:num_candidates]
        begin = Prompt(body.prompt[prompt], candidates[0], body, service.tokenizer)
        await begin.read()
        of_prompt = await told_prompt_logprobs(candidates[0], body, service.tokenizer)
        for best in _best(candidates, tokens, body.n or 1):
            choice = Choice(len(choices), best, begin, body, service.tokenizer, manner_of(service))
            choices.append({**choice.whole(tokens[best.index]), **of_prompt})
    num_tokens = 0 if is_prompt_only(body) else sum(map(len, tokens))
    content = {**start, "choices": choices, "usage": count_usage(answers.each, num_tokens, num_candidates)}
    return Whole(content, {**_headers(service, body, identity), **time_headers(answers.each, num_candidates)})


def _best(candidates: Sequence[Answer], tokens: list[list[Token]], number: int) -> list[Answer]:
    """Returns the best candidates, the best first; if there are no more than `number`, all in their own order."""
    if len(candidates) == number:
        return [answer for answer in candidates if answer.ending is not None]
    return best_first(candidates, tokens)[:number]


async def _chunks(
    asking: Asking, body: CompletionBody, specs: list[GenerationSpec], identity: Identity
) -> AsyncGenerator[AnswerEvent]:
    """Yields a chunk per token. The last of each answer has its usage, unless that is asked for in a chunk of its
    own."""
    service = asking.service
    start = orjson.dumps(_head(service, body, identity))[:-1] + b","
    options = body.stream_options
    has_usage_chunk = bool(options and options.include_usage)
    has_usage = bool(options and options.continuous_usage_stats)
    per_prompt = specs[0].num_answers
    async with answering(asking, specs, identity, is_stream=True) as answers:
        yield ADMITTED
        choices = _choices(answers, body, per_prompt, service)
        events = _prompt_logprobs_first(answers, per_prompt) if specs[0].wants_prompt_logprobs else answers
        async for answer, event in events:
            choice = choices[answer.index]
            await choice.prompt.read()
            chunk: dict[str, Any] = {"choices": [choice.chunk(event)]}
            if has_usage or (event.ending is not None and not has_usage_chunk):
                chunk["usage"] = count_usage([answer], choice.num_tokens)
            elif has_usage_chunk:
                chunk["usage"] = None
            yield AnswerEvent(answer.index, start + orjson.dumps(chunk)[1:])
    if has_usage_chunk:
        num_tokens = sum(choice.num_tokens for choice in choices)
        usage = count_usage(answers.each, num_tokens, per_prompt)
        yield AnswerEvent(NO_ANSWER, start + orjson.dumps({"choices": [], "usage": usage})[1:])


async def _prompt_logprobs_first(answers: Answers, per_prompt: int) -> AsyncGenerator[tuple[Answer, Event]]:
    """Yields the events; those of a prompt's other answers wait for the answer that the prompt's logprobs come with.

    A prompt that is in the prefix cache is computed anew for its logprobs alone, while the others go on already.
    """
    held: dict[int, list[tuple[Answer, Event]]] = {prompt: [] for prompt in range(len(answers.each) // per_prompt)}
    async for answer, event in answers:
        prompt, number = divmod(answer.index, per_prompt)
        if prompt in held and number:
            held[prompt].append((answer, event))
            continue
        yield answer, event
        for each in held.pop(prompt, ()):
            yield each


def _choices(answers: Answers, body: CompletionBody, per_prompt: int, service: Service) -> list[Choice]:
    prompts = [Prompt(prompt, answers.each[number * per_prompt], body, service.tokenizer)
               for number, prompt in enumerate(body.prompt)]
    manner = manner_of(service)
    return [Choice(answer.index, answer, prompts[answer.index // per_prompt], body, service.tokenizer, manner)
            for answer in answers.each]


def _head(service: Service, body: CompletionBody, identity: Identity) -> dict[str, Any]:
    answer_id = manner_of(service).answer_id("cmpl", identity)
    request_record.name_answer(answer_id)
    return head(service, body, _KIND, answer_id)
