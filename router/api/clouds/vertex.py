"""The route that Google Vertex AI calls in a container: `POST /vertex`, or at the path that it names."""

import asyncio
from typing import Annotated, Any

import orjson
from aiohttp import web
from pydantic import BaseModel, BeforeValidator, Field

from penstock.router.api.clouds.errors import NoInstances
from penstock.router.api.http.body import json_response, read_json, to_body
from penstock.router.api.http.headers import wish_of
from penstock.router.api.openai import chat
from penstock.router.api.openai.bodies import ChatBody
from penstock.router.api.tgi import generate as tgi
from penstock.router.api.tgi.bodies import CompatBody
from penstock.router.chat.messages import count_items
from penstock.router.errors import Overloaded, ValidationError
from penstock.router.generation.identity import OUTPUT_IDS, REPEAT, RESUME, Wish
from penstock.router.generation.services import first_of
from penstock.router.shapes import Body


def _count_messages(instances: object) -> object:
    """Returns the instances unchanged; ValueError if their messages are too many in all."""
    if isinstance(instances, list):
        talks = [instance.get("messages") for instance in instances if isinstance(instance, dict)]
        count_items([message for talk in talks if isinstance(talk, list) for message in talk])
    return instances


class VertexBody(Body):
    """The body of `POST /vertex`: a body of `POST /` or of a chat for each answer."""

    instances: Annotated[
        list[Annotated[CompatBody | ChatBody, Field(union_mode="left_to_right")]],
        Field(fail_fast=True), BeforeValidator(_count_messages)]


class Predictions(BaseModel):
    predictions: list[str]


async def vertex(request: web.Request) -> web.StreamResponse:
    """Answers with a text for each instance. They are computed together; if one fails, all do."""
    content = await read_json(request)
    instances = content.get("instances") if isinstance(content, dict) else None
    if isinstance(instances, list) and len(instances) > first_of(request).limits.max_concurrent_requests:
        raise Overloaded  # before they are looked at, for there may be a million
    body = to_body(content, VertexBody)
    if not body.instances:
        raise NoInstances
    wishes = _wishes(request, len(body.instances))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_answer(request, instance, wish))
                     for instance, wish in zip(body.instances, wishes, strict=True)]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    responses = [task.result() for task in tasks]
    return json_response({"predictions": [_text(response) for response in responses]},
                         headers={REPEAT: ", ".join(response.headers[REPEAT] for response in responses)})


def _wishes(request: web.Request, number: int) -> list[Wish]:
    """Returns the wish of each instance: an answer of its own name, or a seed of its own by the key."""
    wish = wish_of(request)
    if wish.resume_after is not None or wish.output_ids is not None:
        raise ValidationError(f"`{RESUME}` and `{OUTPUT_IDS}` are for requests for a stream")
    names = [None] * number if wish.repeat is None else [name.strip() for name in wish.repeat.split(",")]
    if len(names) != number:
        raise ValidationError(f"`{REPEAT}` must name an answer for each of {number} instances. Given: {len(names)}")
    return [Wish(repeat=name, key=wish.key and f"{wish.key}/{index}") for index, name in enumerate(names)]


async def _answer(request: web.Request, instance: CompatBody | ChatBody, wish: Wish) -> web.Response:
    """Returns the whole answer to an instance; it repeats the prompt only if the instance asks for that."""
    if isinstance(instance, ChatBody):
        response = await chat.answer(request, instance.model_copy(update={"stream": False}), wish)
    else:
        full_text = bool(instance.parameters.return_full_text)
        parameters = instance.parameters.model_copy(update={"return_full_text": full_text})
        response = await tgi.answer_generate(
            request, instance.model_copy(update={"stream": False, "parameters": parameters}), wish)
    assert isinstance(response, web.Response)
    return response


def _text(response: web.Response) -> str:
    """Returns the answer's text, or its calls of tools as JSON."""
    assert isinstance(response.body, bytes)
    content: Any = orjson.loads(response.body)
    if isinstance(content, list):
        return str(content[0]["generated_text"])
    message = content["choices"][0]["message"]
    return message.get("content") or orjson.dumps(message.get("tool_calls", "")).decode()
