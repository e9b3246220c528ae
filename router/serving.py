"""How a process of the router answers clients, from its start to its end."""

import asyncio
import json
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router import tls
from penstock.router.api.http.access import Access
from penstock.router.api.http.site import Site
from penstock.router.api.route_table import vertex_routes
from penstock.router.app import make_app, make_runner
from penstock.router.config import RouterConfig
from penstock.router.explaining.recent import Recent, Stories
from penstock.router.generation import request_log
from penstock.router.generation.accounting import Accounting
from penstock.router.generation.around import Around
from penstock.router.generation.service import Service
from penstock.router.generation.services import Services
from penstock.router.generation.tasks import reranks, routes_of
from penstock.router.journal.redaction import Redaction
from penstock.router.keys import Keys
from penstock.router.limits import Limits
from penstock.router.memory_ceiling import memory_ceiling
from penstock.router.models.several import services_of
from penstock.router.pipelines.pipelines import Pipelines
from penstock.router.storing import open_store
from penstock.router.surroundings import open_around
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
    config: RouterConfig, service: Service, tell_ready: Callable[[], None], stop: asyncio.Event,
    stories: Stories | None = None,
) -> None:
    """Answers clients until `stop` is set, then lets running requests finish; those left after the time for that
    fail. The stories of requests are kept here, if not among `stories`."""
    access = Access(Keys(config.api_key, config.api_key_file), Keys(config.metrics_key), config.cors_allow_origin)
    _reload_on_sighup(config, access.api_keys, None)
    ssl_context = tls.server_context(config)
    store = await open_store(config)
    around = await open_around(config, store, service.metrics, has_keys=bool(access.api_keys),
                               stories=stories or Recent(config.explained_requests))
    service = replace(service, around=replace(
        around, rates=service.around.rates, grants_of=access.api_keys.grants_of))
    _reload_on_sighup(config, access.api_keys, around.accounting)
    with _tracing(config) as tracing:
        services = services_of(config, service)
        pipelines = await Pipelines.opened(config.pipelines, services)
        app = make_app(
            services, access, pipelines=pipelines,
            more_routes=vertex_routes(config.vertex_predict_route, config.vertex_health_route),
            outer=[tracing.middleware] if tracing else [], store=store)
        app.on_cleanup.insert(0, lambda app: _close(around))  # before the engine ends, and the store is closed
        app.on_cleanup.append(lambda app: pipelines.close())
        if store is not None and config.number == 0:
            _add_runners(app, access)
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
        _tell(config, service, has_store=store is not None)
        await stop.wait()
        # Otherwise aiohttp would break the connections off without a word, after twice its timeout.
        overdue = asyncio.get_running_loop().call_later(config.graceful_termination_timeout, _give_up, services)
        await runner.cleanup()
        overdue.cancel()


async def _close(around: Around) -> None:
    await request_log.finish()
    await around.close()


def _add_runners(app: web.Application, access: Access) -> None:
    """Has the app run batches and responses of the background."""
    if not access.api_keys:
        log.warning("whoever reaches this server may read and delete files, batches and responses: it has no --api-key")
    from penstock.router.background.runner import add_response_runner  # which import SQLAlchemy
    from penstock.router.batches.runner import add_runner, owner_of_this_process

    add_runner(app, owner_of_this_process())
    add_response_runner(app, owner_of_this_process())


def _tell(config: RouterConfig, service: Service, has_store: bool) -> None:
    """Logs the models that are served, with their limits, and where."""
    limits, num_slots = service.limits, service.engine.num_slots
    others = service.tokenizer.most_memory(limits.payload_limit)
    if config.is_gateway:
        log.info("servers elsewhere answer for all models: %s", ", ".join(each.name for each in config.elsewhere))
    elif config.role != "front":
        describe(config, service.facts, limits, others, num_slots)
    elif config.number == 0 and (
            found := memory_ceiling(limits, 0, others, num_lines=num_slots if has_store else None)):
        log.info("each of %d processes for clients: %s", config.api_workers, found)
    if config.number == 0:
        log.info("Serving at %s, for example:\n\n    %s\n", url(config),
                 example(config, service.facts, is_chat=config.is_gateway or service.template is not None))


def _give_up(services: Services) -> None:
    """Has all requests fail, whichever model they are to."""
    for service in services:
        service.engine.give_up()


def _reload_on_sighup(config: RouterConfig, keys: Keys, accounting: Accounting | None) -> None:
    """Has SIGHUP read the files again of which there are any."""
    names = {config.name, *(other.config.name for other in config.others), *(each.name for each in config.elsewhere)}
    if accounting is not None:
        accounting.tell_unknown(keys.names, names)

    def reload() -> None:
        if config.api_key_file:
            _reload("API keys", lambda: f"there are {keys.reload()} API keys now")
        if accounting is not None:
            _reload("prices", accounting.reload)
            accounting.tell_unknown(keys.names, names)

    if config.api_key_file or accounting is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)


def _reload(what: str, read: Callable[[], str]) -> None:
    """Reads a file again, and logs what `read` says of it; one that is wrong changes nothing."""
    try:
        log.info("SIGHUP: %s", read())
    except InvalidArgument as error:
        log.error("SIGHUP: the %s stay as they were: %s", what, error)


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
        has_texts = config.request_log is not None and config.request_log_content == "texts"
        yield Tracing(export.provider, config.model_id, Redaction(config.request_log_redact) if has_texts else None)
    finally:
        export.close()


def describe(config: RouterConfig, facts: Facts, limits: Limits, others: int = 0, num_slots: int = 0) -> None:
    """Tells the log what is served, within which limits, and what decides the bits of an answer. `others` are the bytes
    of processes for long texts, and `num_slots` the sequences that run at once."""
    memory = "" if facts.is_whole else f"{facts.capacity} KV tokens, "
    log.info("%s in %s on %d shard%s; %sat most %d a request, %d a step", config.model_id, facts.dtype,
             facts.world_size, "s" * (facts.world_size > 1), memory, limits.max_total_tokens,
             limits.max_batch_prefill_tokens)
    if facts.is_deterministic:
        log.info("no answer changes with the batch: any server of these weights gives the same ones, bit for bit, if "
                 "its kernels and number formats have the same name (numerics): %s", facts.numerics)
    else:
        log.info("answers may change with the batch%s; their kernels and number formats (numerics): %s",
                 ", which --deterministic prevents" if facts.keeps_bits else ", as a trial has shown of this model",
                 facts.numerics)
    if Task.GENERATE not in facts.tasks:
        log.info("the model generates no text: it has %s", ", ".join(routes_of(facts)))
        return  # the vectors of many long texts take more memory than the numbers below say
    has_store = config.role == "alone" and config.has_store
    if found := memory_ceiling(limits, facts.num_blocks, others, num_lines=num_slots if has_store else None):
        log.info("%s", found)


def example(config: RouterConfig, facts: Facts, is_chat: bool) -> str:
    """Returns a command that asks the server something that its model can answer."""
    key = ' -H "authorization: Bearer $API_KEY"' if config.api_key or config.api_key_file else ""
    path, body = _question(facts, is_chat)
    return f"curl {url(config)}{path}{key} -H 'content-type: application/json' -d '{json.dumps(body)}'"


def _question(facts: Facts, is_chat: bool) -> tuple[str, dict[str, Any]]:
    """Returns the path and the body of that: for a model that generates a chat, where it has a template for chats, or
    else a completion."""
    if reranks(facts):
        return "/rerank", {"query": "What is a black hole?", "texts": ["A star that fell into itself.", "A sheep."]}
    if Task.CLASSIFY in facts.tasks:
        return "/predict", {"inputs": "What a wonderful day!"}
    if Task.GENERATE not in facts.tasks:
        path = "/embed" if Task.EMBED in facts.tasks else "/embed_sparse"
        return path, {"inputs": "What is a black hole?"}
    if is_chat:
        return "/v1/chat/completions", {"messages": [{"role": "user", "content": "What is a black hole?"}],
                                        "max_tokens": 60}
    return "/generate", {"inputs": "Once upon a time,", "parameters": {"max_new_tokens": 60}}


def url(config: RouterConfig) -> str:
    """Returns the server's address for a client of this machine."""
    host = addresses.to_ask(config.hostname).replace("127.0.0.1", "localhost")
    return f"{'http' if config.ssl_certfile is None else 'https'}://{addresses.joined(host, config.port)}"
