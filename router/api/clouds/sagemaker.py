"""The route that Amazon SageMaker calls in a container: `POST /invocations`."""

from aiohttp import web

from penstock.router.api.http.body import read_json, to_body
from penstock.router.api.openai import chat, completions
from penstock.router.api.openai.bodies import ChatBody, CompletionBody
from penstock.router.api.openai.failures import speak_openai
from penstock.router.api.tgi import generate as tgi
from penstock.router.api.tgi.bodies import CompatBody
from penstock.router.errors import WrongShape


async def invocations(request: web.Request) -> web.StreamResponse:
    """Answers as `POST /`, `/v1/chat/completions` or `/v1/completions`, whichever takes a body with these fields."""
    content = await read_json(request)
    fields = content if isinstance(content, dict) else {}
    if "inputs" in fields:
        return await tgi.answer_generate(request, to_body(content, CompatBody))
    if "messages" in fields or "prompt" in fields:
        speak_openai(request)
    if "messages" in fields:
        return await chat.answer(request, to_body(content, ChatBody))
    if "prompt" in fields:
        return await completions.answer(request, to_body(content, CompletionBody))
    raise WrongShape("data did not match any variant of untagged enum SagemakerRequest",
                     "missing_required_parameter", None)
