"""The walk of a request in docs/architecture.md: a real request takes it, in that order, past functions that there are.

Router and shard run in one process here, over a real socket between them, so that one profiler sees the whole way.
"""

import asyncio
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import CodeType, FrameType

import grpc
import pytest
from aiohttp.test_utils import TestClient, TestServer

from penstock.kernels import dispatch
from penstock.router.app import make_app
from penstock.router.engine.engine import Engine
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.service import ServerInfo, Service, Services
from penstock.router.groups.groups import Groups
from penstock.router.metrics.metrics import Metrics
from penstock.router.text.tokenizer import Tokenizer
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.serving.agreement import Agreement
from penstock.shard.serving.server import ShardServicer, generic_handler
from penstock.shard.serving.worker import Worker
from tests.fakes import LIMITS
from tests.paths import DEMO_MODEL, ROOT

Hop = tuple[str, str]
"""A file and the qualified name of a function in it."""


def walk() -> list[Hop]:
    """Reads the hops of the page's walk, `file:function`, in their order."""
    section = (ROOT / "docs/architecture.md").read_text().partition("## The walk of a request")[2].partition("\n## ")[0]
    return re.findall(r"`([\w/]+\.py):([\w.]+)`", section)


def hop_of(code: CodeType) -> Hop | None:
    """Returns the hop that a function of this project is, or None for anything else."""
    path = Path(code.co_filename).resolve()
    rooms = [ROOT / name for name in ("router", "contract", "shard", "kernels")]
    if not any(map(path.is_relative_to, rooms)):
        return None
    return str(path.relative_to(ROOT)), code.co_qualname


@asynccontextmanager
async def router_and_shard(folder: Path) -> AsyncIterator[TestClient]:
    """Serves the demo model from this process; one thread runs the shard's steps."""
    target = f"unix:{folder}/shard"
    with ThreadPoolExecutor(1, "steps") as steps:
        executor = steps.submit(Executor, ShardConfig(model=DEMO_MODEL, kv_memory=1 << 24), Group()).result()
        worker = Worker(executor, Agreement(Group()), steps, sys.exit)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([generic_handler(ShardServicer(describe(executor, 256), worker))])
        server.add_insecure_port(target)
        await server.start()
        fleet, metrics = GrpcFleet([target]), Metrics(LIMITS)
        tokenizer = Tokenizer.load(DEMO_MODEL / "tokenizer.json", 1)
        engine = Groups(LIMITS, metrics)
        engine.add(Engine(fleet, await fleet.describe(), LIMITS, metrics))
        info = ServerInfo(model_id="demo", version="0", compute_type="cpu", model_sha=None)
        service = Service(engine, tokenizer, metrics, info, PoisonMemory(LIMITS.poison_memory))
        async with TestClient(TestServer(make_app(Services(service)))) as client:
            while not engine.has_group:
                await engine.changed.wait()
                engine.changed.clear()
            yield client
        await fleet.close()
        await server.stop(None)


@contextmanager
def noting_calls(note: Callable[[CodeType], None]) -> Iterator[None]:
    """Notes every call of a Python function in this thread, and in those that start while the block runs."""
    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            note(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.fixture(scope="module")
def first_calls(tmp_path_factory: pytest.TempPathFactory) -> list[CodeType]:
    """The functions that one `POST /generate_stream` calls, in the order of their first calls."""
    calls: dict[CodeType, None] = {}

    async def until_quiet() -> None:
        """Waits for what still comes after an answer: the shard hears that the sequence has ended."""
        while any(hop_of(code) for code in list(calls)):
            calls.clear()
            await asyncio.sleep(0.1)
        calls.clear()

    async def ask_twice() -> None:
        """The second request finds what lasts longer than a request begun, such as the stream of plans."""
        async with router_and_shard(tmp_path_factory.mktemp("walk")) as client:
            for inputs in ("import os", "def open(path):"):
                await until_quiet()
                body = {"inputs": inputs, "parameters": {"max_new_tokens": 4}}
                async with client.post("/generate_stream", json=body) as response:
                    assert (await response.text()).count("data:") == 4

    with noting_calls(lambda code: calls.setdefault(code)):
        asyncio.run(ask_twice())
    return list(calls)


@pytest.mark.skipif(dispatch.kernel_set() != "cpu", reason="the walk leads through the processor's compiled kernels")
def test_a_request_takes_the_walk_of_the_page(first_calls: list[CodeType]) -> None:
    order: dict[Hop, int] = {}
    for number, code in enumerate(first_calls):
        if hop := hop_of(code):
            order.setdefault(hop, number)
    hops = walk()
    assert len(hops) > 40
    assert [hop for hop in hops if hop not in order] == []
    assert hops == sorted(hops, key=order.__getitem__)


def test_the_page_counts_the_hops() -> None:
    names = [name for _, name in walk()]
    wire, kernel = names.index("ShardClient.write") + 1, names.index("sample") + 1
    counted = f"{wire} functions to the wire, {kernel - wire} to the last kernel, {len(names) - kernel} back"
    assert counted in " ".join((ROOT / "docs/architecture.md").read_text().split())
