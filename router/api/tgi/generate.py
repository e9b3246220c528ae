"""TGI's own routes: `POST /generate`, `POST /generate_stream` and `POST /`."""

from collections.abc import AsyncGenerator
from typing import Any

import orjson
from aiohttp import web

from penstock.contract.row_result import TopLogprobs
from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.http.headers import compute_time, request_headers, time_headers, wish_of
from penstock.router.api.http.sse import ADMITTED, AnswerEvent, stream_events
from penstock.router.api.tgi.bodies import CompatBody, GenerateBody
from penstock.router.engine.stream import Ending, Token
from penstock.router.errors import RouterError, ValidationError
from penstock.router.generation.answers import Answer, answering, best_first, tokens_of
from penstock.router.generation.asking import Asking
from penstock.router.generation.float32 import shortest_float32
from penstock.router.generation.identity import REPEAT, Identity, Wish, identify
from penstock.router.generation.other_fields import (
    REFUSED_BESIDE_INPUTS,
    REFUSED_IN_PARAMETERS,
    refuse_unsupported,
)
from penstock.router.generation.service import Service, service_of
from penstock.router.generation.spec import GenerationSpec
from penstock.router.text.tokenizer import Tokenizer


async def generate(request: web.Request) -> web.StreamResponse:
    """Answers `POST /generate` with the whole answer."""
    body = await read_body(request, GenerateBody)
    with Asking(service_of(request)) as asking:
        answer, headers = await _whole_answer(asking, body, asks_full_text(body, default=False), wish_of(request))
        return json_response(answer, headers=headers)


async def generate_stream(request: web.Request) -> web.StreamResponse:
    """Answers `POST /generate_stream` with an event per token."""
    body = await read_body(request, GenerateBody)
    return await _stream_answer(request, body, asks_full_text(body, default=False))


async def compat_generate(request: web.Request) -> web.StreamResponse:
    """Answers `POST /`, whole or streamed, as `stream` says."""
    return await answer_generate(request, await read_body(request, CompatBody))


async def answer_generate(
    request: web.Request, body: CompatBody, wish: Wish | None = None
) -> web.StreamResponse:
    """Returns a stream, or a list of one whole answer; the text begins with the prompt unless the body says
    otherwise. `wish` takes the place of what the request's headers wish for."""
    is_full_text = asks_full_text(body, default=True)
    if body.stream:
        return await _stream_answer(request, body, is_full_text)
    with Asking(service_of(request)) as asking:
        answer, headers = await _whole_answer(asking, body, is_full_text, wish or wish_of(request))
        return json_response([answer], headers=headers)


def asks_full_text(body: GenerateBody, default: bool) -> bool:
    """Tells whether the text of an answer begins with its prompt."""
    asked = body.parameters.return_full_text
    return default if asked is None else asked


async def identified(
    service: Service, body: GenerateBody, is_full_text: bool, wish: Wish, *, is_stream: bool
) -> tuple[GenerationSpec, Identity]:
    """Returns the spec of a body, in the terms that all APIs share, and the identity of its answer. ValidationError
    names a field of another server that would change the answer."""
    refuse_unsupported(body.model_extra, REFUSED_BESIDE_INPUTS)
    refuse_unsupported(body.parameters.model_extra, REFUSED_IN_PARAMETERS)
    if (body.parameters.num_return_sequences or 1) > 1 and not body.parameters.details:
        raise ValidationError("`num_return_sequences` > 1 needs `details` to be true: they have the answers that are "
                              "not the best")
    spec = GenerationSpec(
        body.inputs, body.parameters,
        wants_prompt_logprobs=body.parameters.decoder_input_details and service.limits.enable_prefill_logprobs,
        adapter=body.parameters.adapter_id)
    return spec, await identify(service, [spec], wish, ("generate", is_full_text), is_stream=is_stream)


async def _whole_answer(
    asking: Asking, body: GenerateBody, is_full_text: bool, wish: Wish
) -> tuple[dict[str, Any], dict[str, str]]:
    service = asking.service
    spec, identity = await identified(service, body, is_full_text, wish, is_stream=False)
    async with answering(asking, [spec], identity, is_stream=False) as answers:
        tokens = await tokens_of(answers)
    best = best_first(answers.each, tokens)[0]
    headers = {**request_headers(service, body.inputs), REPEAT: identity.text, **compute_time([best]),
               **time_headers([best])}
    prompt = body.inputs * is_full_text
    content = {"generated_text": prompt + _ending(best).text}
    if not (body.parameters.details or body.parameters.decoder_input_details):
        return content, headers
    prefill = _prefill(service, answers.each[0])
    sequences = {answer: _sequence(service, answer, tokens[answer.index], prefill)
                 for answer in answers.each if answer.ending is not None}
    details = sequences.pop(best)
    if sequences:
        details["best_of_sequences"] = [
            {"generated_text": prompt + _ending(answer).text, **sequence} for answer, sequence in sequences.items()]
    return {**content, "details": details}, headers


def _sequence(service: Service, answer: Answer, tokens: list[Token], prefill: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the details of one answer, with the top tokens only if they were asked for."""
    details = {**_details(answer, _ending(answer)), "prefill": prefill, "tokens": [_token(token) for token in tokens]}
    if answer.request.sampling.top_n:
        details["top_tokens"] = [_top(service.tokenizer, token.top_logprobs) for token in tokens]
    return details


def _prefill(service: Service, answer: Answer) -> list[dict[str, Any]]:
    """Returns the prompt's tokens, of which the first has no logprob; an empty list unless logprobs were computed."""
    if not answer.request.wants_prompt_logprobs:
        return []
    logprobs = [None, *map(shortest_float32, answer.prompt_logprobs.logprobs)]
    return [{"id": token_id, "text": service.tokenizer.text_of(token_id), "logprob": logprob}
            for token_id, logprob in zip(answer.request.input_ids, logprobs, strict=True)]


async def _stream_answer(request: web.Request, body: GenerateBody, is_full_text: bool) -> web.StreamResponse:
    """Streams the answer. As in TGI the status is sent before anything is checked, and an error is the last event."""
    with Asking(service_of(request)) as asking:
        spec, identity = await identified(asking.service, body, is_full_text, wish_of(request), is_stream=True)
        headers = {**request_headers(asking.service, body.inputs), REPEAT: identity.text}
        events = _events(asking, body, spec, identity, is_full_text)
        return await stream_events(request, headers, events, _render_failure, identity)


async def _events(
    asking: Asking, body: GenerateBody, spec: GenerationSpec, identity: Identity, is_full_text: bool
) -> AsyncGenerator[AnswerEvent]:
    tokenizer = asking.service.tokenizer
    async with answering(asking, [spec], identity, is_stream=True) as answers:
        yield ADMITTED
        index = 0
        async for answer, event in answers:
            index += 1
            content: dict[str, Any] = {
                "index": index, "token": _token(event.token), "generated_text": None, "details": None}
            if event.token.top_logprobs:
                content["top_tokens"] = _top(tokenizer, event.token.top_logprobs)
            if event.ending is not None:
                content.update(_render_ending(answer, event.ending, body, is_full_text))
            yield answer.index, orjson.dumps(content)


def _render_ending(answer: Answer, ending: Ending, body: GenerateBody, is_full_text: bool) -> dict[str, Any]:
    details = {**_details(answer, ending), "input_length": len(answer.request.input_ids)}
    return {
        "generated_text": body.inputs * is_full_text + ending.text,
        "details": details if body.parameters.details else None}


def _render_failure(error: RouterError) -> bytes:
    return orjson.dumps(error.body())


def _ending(answer: Answer) -> Ending:
    assert answer.ending is not None
    return answer.ending


def _details(answer: Answer, ending: Ending) -> dict[str, Any]:
    """Returns TGI's details, how many of the prompt's tokens were found in the prefix cache, the score of an answer of
    a beam search, and where tokens are guessed how many were, and how many rightly."""
    details: dict[str, Any] = {
        "finish_reason": ending.finish_reason.value, "generated_tokens": ending.num_tokens, "seed": answer.seed,
        "prefix_hit_tokens": answer.hit_tokens}
    if ending.score is not None:
        details["score"] = ending.score
    if (guesses := answer.guesses) is not None:
        details |= {"drafted_tokens": guesses.drafted, "accepted_tokens": guesses.accepted}
    return details


def _token(token: Token) -> dict[str, Any]:
    return {
        "id": token.id, "text": token.text, "logprob": shortest_float32(token.logprob), "special": token.is_special}


def _top(tokenizer: Tokenizer, top: TopLogprobs) -> list[dict[str, Any]]:
    return [
        {"id": token_id, "text": tokenizer.text_of(token_id), "logprob": shortest_float32(logprob),
         "special": tokenizer.is_special(token_id)}
        for token_id, logprob in top]
