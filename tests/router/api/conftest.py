"""The real app, engine and tokenizer over a scripted fleet, behind a real socket, on the router's own event loop."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvloop
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer
from tokenizers import Tokenizer as ParsedTokenizer

from penstock.bench.programs.scripted_model import Answer, ScriptedModel
from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.contract.row import Row
from penstock.router.adapters.registry import Registry
from penstock.router.app import IDLE_SECONDS, make_app, make_runner
from penstock.router.chat.given_templates import GivenTemplates
from penstock.router.chat.template import ChatTemplate
from penstock.router.config import RouterConfig, ServedModel
from penstock.router.engine.engine import Engine
from penstock.router.generation.around import NOTHING, Around
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.service import ServerInfo, Service
from penstock.router.generation.services import Services
from penstock.router.generation.text_rules import TextRules
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.groups.groups import Groups
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.models.aliases import Aliases
from penstock.router.models.model import Count, Model
from penstock.router.models.models import Models
from penstock.router.models.orders import OrderPipe, Orders
from penstock.router.pipeline_settings import PipelineSettings
from penstock.router.pipelines.pipelines import Pipelines
from penstock.router.text import encoding
from penstock.router.text.tokenizer import Tokenizer
from tests.eventually import until
from tests.fakes import FACTS, LIMITS, ScriptedFleet, SpeakingFleet
from tests.router.api.chat_templates import HERMES
from tests.router.text.tokenizers_for_tests import DEMO


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Chooses the loop of these tests: asyncio's own has other transports, and leaves other things undone."""
    return {"uvloop": uvloop.new_event_loop}


INFO = ServerInfo(model_id="demo", version="0.1.0", compute_type="2-cpu", model_sha="abc")
ANSWER = "Hello wörld, 😀 is all.<|im_end|>"


class Script:
    """A model that gives the same answer to every prompt, over and over."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids
        self._positions: dict[int, int] = {}

    def __call__(self, row: Row) -> int:
        position = self._positions[row.slot] + 1 if row.from_last_sample else 0
        self._positions[row.slot] = position
        return self.ids[position % len(self.ids)]


@dataclass
class Server:
    """An app that runs, and the parts of it that a test looks into."""

    client: TestClient[Any, Any]
    fleet: ScriptedFleet
    groups: Groups
    engine: Engine
    tokenizer: Tokenizer
    metrics: Metrics
    is_to_end: asyncio.Event
    """Set by SIGTERM, by which the app ends a router whose engine failed."""

    async def post(self, path: str, body: object) -> ClientResponse:
        response: ClientResponse = await self.client.post(path, json=body)
        return response

    async def generate(self, inputs: str = "Say it", **parameters: object) -> dict[str, Any]:
        response = await self.post("/generate", {"inputs": inputs, "parameters": parameters})
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer

    def series(self) -> dict[str, float]:
        """What /metrics says, by series."""
        lines = self.metrics.exposition().decode().splitlines()
        return {name: float(value) for name, value in
                (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def counted(self, name: str, **labels: str) -> float:
        """One of the series; to ask for all of them again and again would keep the loop busy."""
        return self.metrics._registry.get_sample_value(name, labels) or 0.0

    async def until_idle(self) -> None:
        """Wait until nothing runs and every permit is back."""
        await until(lambda: not self.engine._requests and self.groups._permits == LIMITS.max_concurrent_requests)


class RealServer(TestServer):
    """Run in the way that the router runs it."""

    def __init__(self, app: web.Application, idle_seconds: float) -> None:
        super().__init__(app)
        self._idle_seconds = idle_seconds

    async def _make_runner(self, **settings: Any) -> web.AppRunner:
        return make_runner(self.app, idle_seconds=self._idle_seconds)


@cache
def _parse_tokenizer(file: Path) -> tuple[ParsedTokenizer, str]:
    content = file.read_bytes()
    return encoding.parse(content), sha256(content).hexdigest()


def load_tokenizer(file: Path) -> Tokenizer:
    """Loads a tokenizer.json as a router does, but reads each once, for that takes as long as all else of a server."""
    parsed, digest = _parse_tokenizer(file)
    tokenizer = Tokenizer(parsed, digest=digest, file=os.open(file, os.O_RDONLY))
    tokenizer.num_ids = _count_ids(file)
    return tokenizer


@cache
def _count_ids(file: Path) -> int:
    return Tokenizer(_parse_tokenizer(file)[0]).num_ids


Start = Callable[..., Awaitable[Server]]


@asynccontextmanager
async def starting() -> AsyncIterator[Start]:
    """Starts servers: `await start(limits=…, template=…, access=…)`; `make_fleet` gets the scripted answer. With
    `reply` the answer follows from the prompt, and `server.fleet.model.prompts` has those that came."""
    loop, is_to_end = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, is_to_end.set)
    async with AsyncExitStack() as stack:
        stack.callback(loop.remove_signal_handler, signal.SIGTERM)

        async def start(
            limits: Limits = LIMITS, answer: str = ANSWER, reply: Answer | None = None, facts: Facts = FACTS,
            make_fleet: Callable[[Script], ScriptedFleet] = ScriptedFleet, idle_seconds: float = IDLE_SECONDS,
            prepare: Callable[[web.Application], None] = lambda app: None, tokenizer_file: Path = DEMO,
            adapters: Registry | None = None, grammars: GrammarCompiler | None = None,
            template: ChatTemplate | None = None, allows_runtime_adapters: bool = False, others: Sequence[Service] = (),
            given_templates: GivenTemplates | None = None, texts: TextRules | None = None,
            make_around: Callable[[Metrics], Around] = lambda metrics: NOTHING,
            make_services: Callable[[Service], Services] | None = None, pipelines: Sequence[PipelineSettings] = (),
            **settings: Any,
        ) -> Server:
            tokenizer = load_tokenizer(tokenizer_file)
            stack.callback(tokenizer.close)
            if reply is None:
                fleet = make_fleet(Script(await tokenizer.encode(answer)))
            else:
                parsed, _ = _parse_tokenizer(tokenizer_file)
                fleet = SpeakingFleet(ScriptedModel(parsed, reply, min(facts.eos_token_ids), facts.block_size))
            fleet.facts = facts
            metrics = Metrics(limits, has_tei=Task.GENERATE not in facts.tasks)
            engine = Engine(fleet, facts, limits, metrics, adapters=adapters)
            groups = Groups(limits, metrics, adapters)
            groups.add(engine)
            service = Service(
                groups, tokenizer, metrics, INFO, PoisonMemory(limits.poison_memory), grammars, template,
                Registry() if adapters is None else adapters, allows_runtime_adapters, given_templates,
                texts or TextRules(), around := make_around(metrics))
            stack.push_async_callback(around.close)
            services = Services(service, *others) if make_services is None else make_services(service)
            piped = await Pipelines.opened(pipelines, services)
            stack.push_async_callback(piped.close)
            app = make_app(services, pipelines=piped, **settings)
            prepare(app)
            server = RealServer(app, idle_seconds)
            await server.start_server()
            client: TestClient[Any, Any] = await stack.enter_async_context(TestClient(server))
            stack.callback(fleet.may_answer.set)  # the server's end waits for what runs
            return Server(client, fleet, groups, engine, tokenizer, metrics, is_to_end)

        yield start


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as start:
        yield start


@pytest.fixture
async def server(start: Start) -> Server:
    return await start()


of_one_server = pytest.mark.asyncio(loop_scope="module")
"""Marks tests with a `lasting_server`."""


@pytest.fixture(scope="module")
def lasting_settings() -> dict[str, Any]:
    """What the module's lasting server is started with."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting_server(lasting_settings: dict[str, Any]) -> AsyncIterator[Server]:
    """A server that is started once for a module's tests `of_one_server`, which leave it as it was. To start one takes
    longer than most requests."""
    async with starting() as start:
        yield await start(**lasting_settings)


@pytest.fixture(scope="session")
def demo() -> ChatTemplate:
    """A template that knows nothing of tools."""
    template = ChatTemplate.load(DEMO.parent)
    assert template is not None
    return template


@pytest.fixture(scope="session")
def hermes() -> ChatTemplate:
    """A template that takes tools."""
    return ChatTemplate({"default": HERMES}, {})


@pytest.fixture(scope="session")
def grammars() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(DEMO, FACTS.vocab_size, FACTS.eos_token_ids)
    yield compiler
    compiler.close()


class Opened:
    """A loaded model, which is another server's only service."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def close(self) -> None:
        """Leaves the service to its server."""


@pytest.fixture
async def behind() -> AsyncIterator[Server]:
    """The server of the model `other` of `several`."""
    async with starting() as start:
        yield await start(answer="I am other.<|im_end|>")


@pytest.fixture
async def several(tmp_path: Path, start: Start, behind: Server) -> AsyncIterator[Any]:
    """several(…) starts a server of the models `demo` and `other`, and of the alias `mine` of `other`."""
    pipe = OrderPipe()

    async def begin(aliases: Aliases | None = None, template: ChatTemplate | None = None, **settings: Any) -> Server:
        service = Service(behind.groups, behind.tokenizer, behind.metrics, ServerInfo("other", "1", "cpu"),
                          PoisonMemory(0), template=template)

        async def open(config: RouterConfig, count: Count, on_end: object) -> Opened:
            count(service.facts, service.limits)
            return Opened(service)

        config = RouterConfig(
            model_id="/other", served_name="other", model_dir=tmp_path, tokenizer_json=tmp_path, shard_sockets=(),
            listen_fd=-1, notices_fd=-1, log_level="INFO", compute_type=None, vertex_predict_route=None,
            vertex_health_route=None)
        model = Model(ServedModel(config=config, is_pinned=False, keep_alive=1e6), Orders(pipe.fd),
                      lambda facts, limits: behind.metrics, open)
        return await start(answer="I am demo.<|im_end|>", template=template, make_services=lambda first: Models(
            first, 0, [model], aliases or Aliases({"mine": {"other": 1.0}}), max_memory=None, max_load_wait=5.0,
            **settings))

    yield begin
    pipe.close()
