"""How a process of the router answers clients, from its start to its end."""

import asyncio
import json
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.contract.facts import Facts
from penstock.router import tls
from penstock.router.api.http.access import Access
from penstock.router.api.http.site import Site
from penstock.router.api.route_table import vertex_routes
from penstock.router.app import make_app, make_runner
from penstock.router.config import RouterConfig
from penstock.router.generation.service import Service, Services
from penstock.router.keys import Keys
from penstock.router.limits import Limits
from penstock.router.memory_ceiling import memory_ceiling
from penstock.router.storing import open_store
from penstock.system import addresses
from penstock.system.arguments import InvalidArgument
from penstock.system.heap import freeze_heap

if TYPE_CHECKING:
    from penstock.router.tracing.middleware import Tracing

log = logging.getLogger("penstock.router")

BACKLOG = 1024
"""How many clients may wait until they are accepted, also while a new router starts."""
LAST_WORDS_SECONDS = 0.5
"""How long the answers to requests that were given up may take; less than the launcher waits for the router's end."""


async def answer(
    config: RouterConfig, service: Service, tell_ready: Callable[[], None], stop: asyncio.Event
) -> None:
    """Answers clients until `stop` is set, then lets running requests finish; those left after the time for that
    fail."""
    facts, limits = service.facts, service.limits
    access = Access(Keys(config.api_key, config.api_key_file), Keys(config.metrics_key), config.cors_allow_origin)
    if config.api_key_file:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, access.api_keys)
    ssl_context = tls.server_context(config)
    store = await open_store(config)
    with _tracing(config) as tracing:
        app = make_app(
            Services(service), access,
            more_routes=vertex_routes(config.vertex_predict_route, config.vertex_health_route),
            outer=[tracing.middleware] if tracing else [], store=store)
        if store is not None and config.number == 0:
            if not access.api_keys:
                log.warning("whoever reaches this server may read and delete files, batches and responses: it has no "
                            "--api-key")
            from penstock.router.background.runner import add_response_runner  # which import SQLAlchemy
            from penstock.router.batches.runner import add_runner, owner_of_this_process

            add_runner(app, owner_of_this_process())
            add_response_runner(app, owner_of_this_process())
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
        freeze_heap()
        others, num_slots = service.tokenizer.most_memory(limits.payload_limit), service.engine.num_slots
        if not is_shared:
            describe(config, facts, limits, others, num_slots)
        elif config.number == 0 and (
                found := memory_ceiling(limits, 0, others, num_lines=None if store is None else num_slots)):
            log.info("each of %d processes for clients: %s", config.api_workers, found)
        if config.number == 0:
            log.info("Serving at %s, for example:\n\n    %s\n", url(config),
                     example(config, is_chat=service.template is not None))
        await stop.wait()
        # Otherwise aiohttp would break the connections off without a word, after twice its timeout.
        overdue = asyncio.get_running_loop().call_later(config.graceful_termination_timeout, service.engine.give_up)
        await runner.cleanup()
        overdue.cancel()


def _reload(keys: Keys) -> None:
    try:
        log.info("SIGHUP: there are %d API keys now", keys.reload())
    except InvalidArgument as error:
        log.error("SIGHUP: the API keys stay as they were: %s", error)


@contextmanager
def _tracing(config: RouterConfig) -> Iterator["Tracing | None"]:
    """Yields the tracing of requests while the block runs; None if no endpoint is set."""
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


def describe(config: RouterConfig, facts: Facts, limits: Limits, others: int = 0, num_slots: int = 0) -> None:
    """Tells the log what is served, within which limits, and what decides the bits of an answer. `others` are the bytes
    of processes for long texts, and `num_slots` the sequences that run at once."""
    log.info("%s in %s on %d shard%s; %d KV tokens, at most %d a request, %d a step", config.model_id, facts.dtype,
             facts.world_size, "s" * (facts.world_size > 1), facts.capacity, limits.max_total_tokens,
             limits.max_batch_prefill_tokens)
    if facts.is_deterministic:
        log.info("no answer changes with the batch: any server of these weights gives the same ones, bit for bit, if "
                 "its kernels and number formats have the same name (numerics): %s", facts.numerics)
    else:
        log.info("answers may change with the batch%s; their kernels and number formats (numerics): %s",
                 ", which --deterministic prevents" if facts.keeps_bits else ", as a trial has shown of this model",
                 facts.numerics)
    has_store = config.role == "alone" and config.has_store
    if found := memory_ceiling(limits, facts.num_blocks, others, num_lines=num_slots if has_store else None):
        log.info("%s", found)


def example(config: RouterConfig, is_chat: bool) -> str:
    """Returns a command that asks the server something that its model can answer: a chat, where it has a template for
    chats, or else a completion."""
    key = ' -H "authorization: Bearer $API_KEY"' if config.api_key or config.api_key_file else ""
    path, body = (("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is a black hole?"}],
                                            "max_tokens": 60}) if is_chat else
                  ("/generate", {"inputs": "Once upon a time,", "parameters": {"max_new_tokens": 60}}))
    return f"curl {url(config)}{path}{key} -H 'content-type: application/json' -d '{json.dumps(body)}'"


def url(config: RouterConfig) -> str:
    """Returns the server's address for a client of this machine."""
    host = addresses.to_ask(config.hostname).replace("127.0.0.1", "localhost")
    return f"{'http' if config.ssl_certfile is None else 'https'}://{addresses.joined(host, config.port)}"
