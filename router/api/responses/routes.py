"""OpenAI's `/v1/responses`: makes responses, and counts the tokens of what they would be made of."""

from aiohttp import web

from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.http.headers import wish_of
from penstock.router.api.responses import answering
from penstock.router.api.responses.bodies import AskingBody, ResponseBody
from penstock.router.api.responses.turns import dialogue_of
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.service import service_of


async def create(request: web.Request) -> web.StreamResponse:
    """Makes a response, whole or in events, as `stream` says."""
    body = await read_body(request, ResponseBody)
    request_record.describe("response", body.model)
    with Asking(service_of(request, body.model)) as asking:
        wish = wish_of(request)
        if body.stream:
            return await answering.stream(request, asking, body, [], wish)
        content, headers = await answering.whole_answer(asking, body, [], wish)
        return json_response(content, headers=headers)


async def count_tokens(request: web.Request) -> web.Response:
    """Answers with the number of tokens that the prompt of a response would have."""
    body = await read_body(request, AskingBody)
    service = service_of(request, body.model)
    async with service.engine.permit():
        prompt, _ = await dialogue_of(body, [], service).written(service)
        number = len(await service.tokenizer.encode(prompt, False))
    return json_response({"object": "response.input_tokens", "input_tokens": number})
