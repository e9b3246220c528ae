"""A router and a shard in one process, over a real socket between them."""

import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from aiohttp.test_utils import TestClient, TestServer

from penstock.protos import services, shard_pb2
from penstock.router.app import make_app
from penstock.router.chat.template import ChatTemplate
from penstock.router.engine.engine import Engine
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.service import ServerInfo, Service
from penstock.router.generation.services import Services
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.groups.groups import Groups
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.text.tokenizer import Tokenizer
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.serving.agreement import Agreement
from penstock.shard.serving.server import ENCODED, ShardServicer
from penstock.shard.serving.worker import Worker
from tests.fakes import LIMITS
from tests.paths import DEMO_MODEL


@asynccontextmanager
async def router_and_shard(folder: Path, limits: Limits = LIMITS, **settings: Any) -> AsyncIterator[TestClient]:
    """Serves the demo model from this process; one thread runs the shard's steps. `settings` are the shard's."""
    target = f"unix:{folder}/shard"
    with ThreadPoolExecutor(1, "steps") as steps:
        executor = steps.submit(Executor, ShardConfig(
            model=DEMO_MODEL, **{"kv_memory": 1 << 24, **settings}), Group()).result()
        worker = Worker(executor, Agreement(Group()), steps, sys.exit)
        server = grpc.aio.server()
        services.serve(server, shard_pb2, ShardServicer(describe(executor, 256), worker), ENCODED)
        server.add_insecure_port(target)
        await server.start()
        fleet, metrics = GrpcFleet([target]), Metrics(limits)
        tokenizer = Tokenizer.load(DEMO_MODEL / "tokenizer.json", 1)
        engine = Groups(limits, metrics)
        engine.add(Engine(fleet, facts := await fleet.describe(), limits, metrics))
        info = ServerInfo(model_id="demo", version="0", compute_type="cpu", model_sha=None)
        grammars = GrammarCompiler(DEMO_MODEL / "tokenizer.json", facts.vocab_size, facts.eos_token_ids)
        service = Service(engine, tokenizer, metrics, info, PoisonMemory(limits.poison_memory), grammars,
                          ChatTemplate.load(DEMO_MODEL))
        async with TestClient(TestServer(make_app(Services(service)))) as client:
            while not engine.has_group:
                await engine.changed.wait()
                engine.changed.clear()
            yield client
        grammars.close()
        await fleet.close()
        await server.stop(None)
