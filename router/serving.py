"""How a process of the router answers clients, from its start to its end."""

import asyncio
import importlib.metadata
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.router import environment, tls
from penstock.router.adapters.registry import Registry
from penstock.router.api.http.access import Access
from penstock.router.api.http.site import Site
from penstock.router.api.route_table import vertex_routes
from penstock.router.app import make_app, make_runner
from penstock.router.chat.template import ChatTemplate
from penstock.router.config import InvalidArgument, RouterConfig
from penstock.router.engine.any_engine import AnyEngine
from penstock.router.engine.limits import Limits
from penstock.router.fleet.facts import Facts
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.service import ServerInfo
from penstock.router.generation.validation import Grammars
from penstock.router.keys import Keys
from penstock.router.memory_promise import promise
from penstock.router.metrics.metrics import Metrics
from penstock.router.text.tokenizer import Tokenizer
from penstock.system.at_rest import settle

if TYPE_CHECKING:
    from penstock.router.tracing.middleware import Tracing

log = logging.getLogger("penstock.router")

BACKLOG = 1024
"""How many clients may wait until they are accepted, also while a new router starts."""
LAST_WORDS_SECONDS = 0.5
"""How long the answers to requests that were given up may take; less than the launcher waits for the router's end."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a process that answers clients is made of."""

    engine: AnyEngine
    tokenizer: Tokenizer
    metrics: Metrics
    adapters: Registry
    grammars: Grammars | None
    template: ChatTemplate | None
    poison: PoisonMemory | None = None


async def answer(
    config: RouterConfig, parts: Parts, tell_ready: Callable[[], None], stop: asyncio.Event
) -> None:
    """Answers clients until `stop` is set, then lets running requests finish; those left after the time for that
    fail."""
    engine = parts.engine
    facts, limits = engine.facts, engine.limits
    info = ServerInfo(model_id=config.model_id, model_sha=config.revision,
                      version=importlib.metadata.version("penstock"),
                      compute_type=config.compute_type or environment.compute_type(facts))
    access = Access(Keys(config.api_key, config.api_key_file), Keys(config.metrics_key), config.cors_allow_origin)
    if config.api_key_file:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, access.api_keys)
    ssl_context = tls.server_context(config)
    with _tracing(config) as tracing:
        app = make_app(
            engine, parts.tokenizer, limits, parts.metrics, info, parts.grammars, parts.template,
            access=access, adapters=parts.adapters, poison=parts.poison,
            allows_runtime_adapters=config.allow_runtime_adapters,
            more_routes=vertex_routes(config.vertex_predict_route, config.vertex_health_route),
            outer=[tracing.middleware] if tracing else [])
        drain_seconds = config.graceful_termination_timeout + LAST_WORDS_SECONDS
        if config.grpc_port is not None:
            from penstock.router.rpc.server import add_rpc  # which imports more of gRPC

            add_rpc(app, config, access, tracing, drain_seconds)
        runner = make_runner(app, shutdown_timeout=drain_seconds)
        await runner.setup()
        listener = socket.socket(fileno=config.listen_fd)
        is_shared = config.role == "front"
        await Site(runner, listener, backlog=BACKLOG, ssl_context=ssl_context, is_shared=is_shared).start()
        tell_ready()
        settle()
        if not is_shared:
            describe(config, facts, limits)
        if config.number == 0:
            _announce(config)
        await stop.wait()
        # Otherwise aiohttp would break the connections off without a word, after twice its timeout.
        overdue = asyncio.get_running_loop().call_later(config.graceful_termination_timeout, engine.give_up)
        await runner.cleanup()
        overdue.cancel()


def _reload(keys: Keys) -> None:
    try:
        log.info("SIGHUP: there are %d API keys now", keys.reload())
    except InvalidArgument as error:
        log.error("SIGHUP: the API keys stay as they were: %s", error)


@contextmanager
def _tracing(config: RouterConfig) -> Iterator["Tracing | None"]:
    """Yields what traces requests while the block runs; None if no endpoint is set."""
    if config.otlp_endpoint is None:
        yield None
        return
    from penstock.router.tracing.middleware import Tracing  # which imports OpenTelemetry
    from penstock.telemetry.export import Export

    export = Export(config.otlp_endpoint, config.otlp_service_name, "router")
    try:
        yield Tracing(export.provider, config.model_id)
    finally:
        export.close()


def describe(config: RouterConfig, facts: Facts, limits: Limits) -> None:
    """Tells the log what is served, and within which limits."""
    log.info("%s in %s on %d shard%s; %d KV tokens, at most %d a request, %d a step; numerics %s; %s", config.model_id,
             facts.dtype, facts.world_size, "s" * (facts.world_size > 1), facts.capacity, limits.max_total_tokens,
             limits.max_batch_prefill_tokens, facts.numerics,
             "no answer changes with the batch" if facts.is_deterministic else
             "answers may change with the batch, which --deterministic prevents")
    if found := promise(limits, facts):
        log.info("%s", found)


def _announce(config: RouterConfig) -> None:
    """Tells the log where to ask, and how."""
    host = "localhost" if config.hostname in ("0.0.0.0", "::", "127.0.0.1") else config.hostname
    scheme = "http" if config.ssl_certfile is None else "https"
    log.info("Serving at %s://%s:%d, for example:\n\n    curl %s://%s:%d/generate -H 'content-type: application/json' "
             "-d '{\"inputs\": \"def open(path):\", \"parameters\": {\"max_new_tokens\": 20}}'\n",
             scheme, host, config.port, scheme, host, config.port)
