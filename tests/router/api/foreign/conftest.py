"""A front whose models are elsewhere: at another server of ours, and at one that does what a test says."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from penstock.router.chat.template import ChatTemplate
from penstock.router.foreign.models import ForeignModels
from penstock.router.foreign_settings import Fallback, ForeignSettings
from penstock.router.generation.around import NOTHING
from penstock.router.generation.service import Service
from penstock.router.models.aliases import Aliases, Targets
from penstock.router.models.models import Models
from tests.router.api.conftest import Server, Start

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Stranger:
    """A server that answers every POST as `handler` says, and notes what it got."""

    def __init__(self) -> None:
        self.handler: Handler = self.refuse
        self.bodies: list[Any] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []
        self.num_left = 0
        self.url = ""

    async def refuse(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=500, text="<html>no JSON</html>", content_type="text/html")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(request.headers)
        self.paths.append(request.path_qs)
        try:
            return await self.handler(request)
        except BaseException:
            self.num_left += 1
            raise


@pytest.fixture
async def stranger() -> AsyncIterator[Stranger]:
    stranger = Stranger()
    app = web.Application()
    app.router.add_post("/{path:.*}", stranger.handle)
    server = TestServer(app)
    await server.start_server()
    stranger.url = str(server.make_url("")).rstrip("/")
    yield stranger
    await server.close()


@pytest.fixture
async def other(start: Start, demo: ChatTemplate) -> Server:
    """Another server of ours."""
    return await start(answer="I am elsewhere.<|im_end|>", template=demo)


def url_of(server: Server) -> str:
    return str(server.client.make_url("")).rstrip("/")


Front = Callable[..., Awaitable[Server]]


@pytest.fixture
async def front(start: Start, demo: ChatTemplate) -> Front:
    """front(far={"url": …}, aliases={…}): a server with a model of its own and these."""
    async def front(
        aliases: Mapping[str, Targets] | None = None, access: Any = None, outer: Any = (),
        keys: Mapping[str, str] | None = None, shadows: Mapping[str, Targets] | None = None,
        fallback: Fallback | None = None, make_around: Any = lambda metrics: NOTHING, **models: dict[str, Any]
    ) -> Server:
        elsewhere = [replace(ForeignSettings.parse(name, given, 10), api_key=(keys or {}).get(name))
                     for name, given in models.items()]

        def make_services(first: Service) -> Models:
            return Models(first, 0, [], Aliases(aliases or {}, shadows), max_memory=None, max_load_wait=1.0,
                          elsewhere=ForeignModels.open(elsewhere),
                          fallbacks={} if fallback is None else {"demo": fallback})

        return await start(answer="I am here.<|im_end|>", template=demo, make_services=make_services, access=access,
                           outer=outer, make_around=make_around)

    return front
