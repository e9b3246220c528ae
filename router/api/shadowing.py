"""Requests to an alias that are sent to its shadows, too, whose answers are counted and thrown away."""

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from penstock.router import request_id
from penstock.router.api.foreign.headers import to_source
from penstock.router.api.http.body import READ_AHEAD, read_json, to_body
from penstock.router.api.http.route import Route
from penstock.router.api.tgi.bodies import GenerateBody
from penstock.router.api.tgi.generate import whole_answer
from penstock.router.api.whole_answers import EMBEDDINGS, ROUTES
from penstock.router.engine.stream import Stream
from penstock.router.errors import Overloaded, RouterError
from penstock.router.foreign.attempt import Attempt
from penstock.router.foreign.errors import SourceFailed
from penstock.router.foreign.model import ForeignModel
from penstock.router.generation import request_record
from penstock.router.generation.around import NOTHING
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import REPEAT, RESUME, Wish
from penstock.router.generation.request_record import AnyStream, recording
from penstock.router.generation.service import Service
from penstock.router.generation.services import SERVICES, TAKEN, Services, name_of

log = logging.getLogger(__name__)

MAX_RUNNING = 16
"""How many requests run at shadows at once; those beyond are dropped."""
PATHS = {"/generate": "/generate", "/generate_stream": "/generate", "/": "/generate",
         **{path: path for path in ("/v1/chat/completions", "/v1/completions", EMBEDDINGS)}}
"""The routes whose requests shadows get, each with the one by which their answers are whole."""


class Made(NamedTuple):
    """The answers to a request by a model of this server."""

    service: Service
    streams: list[AnyStream]


@dataclass(frozen=True, slots=True)
class Copy:
    """A request as shadows get it. `told` will have what the client has got, or None if nothing can be said of it."""

    path: str
    content: Mapping[str, Any]
    headers: Mapping[str, str]
    told: "asyncio.Future[Made | None]"


class Shadows:
    """Sends copies of requests to shadows. They come after all other requests, and take none of their permits."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._running: set[asyncio.Task[None]] = set()
        """Those that are answered, and those that wait until their client has its answer, to compare it."""
        self._asked: set[asyncio.Task[None] | None] = set()

    def send(self, name: str, copy: Copy) -> "asyncio.Task[None] | None":
        """Sends a copy to the model of this name; drops it if as many run as may."""
        if len(self._asked) >= MAX_RUNNING:
            self._services.shadow_metrics(name).ended("dropped")
            return None
        task = asyncio.create_task(self._run(name, copy), name=f"a shadow at {name}")
        for tasks in (self._running, self._asked):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task

    async def close(self) -> None:
        """Ends all that run."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(self, name: str, copy: Copy) -> None:
        metrics, outcome, num_tokens, made = self._services.shadow_metrics(name), "left", 0, None
        try:
            foreign = self._services.elsewhere(name)
            if foreign is None:
                made = await self._answer(name, copy)
                num_tokens = sum(stream.num_tokens for stream in made.streams)
            else:
                num_tokens = await _answer_elsewhere(foreign, copy)
            outcome = "answered"
        except Overloaded:
            outcome = "dropped"
        except RouterError:
            outcome = "failed"
        except Exception:
            outcome = "failed"
            log.exception("a request failed at the shadow %s", name)
        finally:
            metrics.ended(outcome, num_tokens)
            self._asked.discard(asyncio.current_task())
        if made is not None and (theirs := await copy.told) is not None and _are_comparable(made, theirs):
            metrics.compared([*map(_said, made.streams)] == [*map(_said, theirs.streams)])

    async def _answer(self, name: str, copy: Copy) -> Made:
        """Raises Overloaded if the model is not loaded, or half of its permits are taken."""
        service = self._services.take_loaded(name)
        if service is None:
            raise Overloaded
        try:
            async with service.engine.permit(service.limits.max_concurrent_requests // 2):
                pass
            with request_id.naming(None), recording(f"POST {copy.path} (shadow)") as record, Asking(
                    replace(service, around=NOTHING), is_background=True) as asking:
                if copy.path in ROUTES:
                    route = ROUTES[copy.path]
                    body = route.read({**copy.content, "model": name}, is_background=True)
                    await route.answer(asking, body, Wish())
                else:
                    await whole_answer(asking, to_body(copy.content, GenerateBody), False, Wish())
                return Made(service, record.streams)
        finally:
            self._services.give_back(service)


SHADOWS = web.AppKey("shadows", Shadows)


def shadowing(route: Route) -> Route:
    """Returns a route that sends shares of the requests to an alias to its shadows."""
    if route.method != "POST" or route.path not in PATHS:
        return route

    async def handle(request: web.Request) -> web.StreamResponse:
        if not request.app[SERVICES].has_shadows or RESUME in request.headers or REPEAT in request.headers:
            return await route.handler(request)
        content = request[READ_AHEAD] = await read_json(request)
        names = _drawn(request, content)
        if not names:
            return await route.handler(request)
        told = asyncio.get_running_loop().create_future()
        copy = Copy(PATHS[route.path], _whole(content), to_source(request), told)
        tasks = [task for name in names if (task := request.app[SHADOWS].send(name, copy)) is not None]
        try:
            response = await route.handler(request)
            record = request_record.current()
            if record.error is None:
                told.set_result(Made(request[TAKEN][-1], record.streams) if TAKEN in request else None)
            return response
        finally:
            if not told.done():
                for task in tasks:
                    task.cancel()

    return replace(route, handler=handle)


def _drawn(request: web.Request, content: object) -> list[str]:
    """Returns the models that are to get a request, too."""
    if not isinstance(content, dict):
        return []
    model = content.get("model")
    name = name_of(request, model if isinstance(model, str) else None)
    shares = {} if name is None else request.app[SERVICES].shadows_of(name)
    return [shadow for shadow, share in shares.items() if random.random() < share]


def _whole(content: dict[str, Any]) -> dict[str, Any]:
    """Returns a body that asks for a whole answer."""
    return {name: value for name, value in content.items() if name not in ("stream", "stream_options")}


async def _answer_elsewhere(model: ForeignModel, copy: Copy) -> int:
    """Returns how many tokens a server elsewhere has made, as far as it says so. Raises Overloaded if it is short of
    permits, and SourceFailed if it does not answer the request."""
    if model.is_busy:
        raise Overloaded
    if copy.path not in model.paths:
        raise model.refusal
    named = {"model": model.settings.model} if copy.path in ROUTES else {}
    attempts: list[Attempt] = []
    async with model.asked(copy.path, orjson.dumps({**copy.content, **named}), copy.headers, attempts) as answer:
        parts = [part async for part in answer.parts()]
        if answer.status >= 400:
            raise SourceFailed(f"{answer.source} has answered with {answer.status}")
    try:
        usage = orjson.loads(b"".join(parts))["usage"]
        return int(usage["completion_tokens"])
    except (ValueError, KeyError, TypeError):
        return 0


def _are_comparable(first: Made, second: Made) -> bool:
    """Tells whether answers depend on nothing but the request, and on no seed that was drawn for one of them."""
    return all(made.service.facts.is_deterministic for made in (first, second)) and (
        len(first.streams) == len(second.streams)) and not any(
        one.request.sampling.do_sample and one.request.sampling.seed != other.request.sampling.seed
        for one, other in zip(first.streams, second.streams, strict=True))


def _said(stream: AnyStream) -> object:
    return stream.text if isinstance(stream, Stream) else stream.values
