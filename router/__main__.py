"""`python -m penstock.router` waits for the group, opens the HTTP port, and serves until SIGTERM."""

import asyncio
import importlib.metadata
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import uvloop

from penstock.router import environment, logs, tls
from penstock.router.adapters.registry import Registry
from penstock.router.api.http.access import Access
from penstock.router.api.http.site import Site
from penstock.router.api.route_table import vertex_routes
from penstock.router.app import make_app, make_runner
from penstock.router.chat.template import ChatTemplate
from penstock.router.config import USAGE_ERROR, InvalidArgument, RouterConfig
from penstock.router.engine.engine import Engine
from penstock.router.engine.engines import Engines
from penstock.router.engine.limits import LimitError, Limits
from penstock.router.fleet.errors import FleetError
from penstock.router.fleet.facts import Facts
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.generation.service import ServerInfo
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.keys import Keys
from penstock.router.launcher_link import LauncherLink
from penstock.router.memory_promise import promise
from penstock.router.metrics.metrics import Metrics
from penstock.router.notices import giving_signs
from penstock.router.text.tokenizer import Tokenizer, TokenizerError
from penstock.system.at_rest import settle
from penstock.system.leftovers import remove_leftovers
from penstock.system.signs import Sign

if TYPE_CHECKING:
    from penstock.router.tracing.middleware import Tracing

log = logging.getLogger("penstock.router")

_T = TypeVar("_T")
BACKLOG = 1024
"""How many clients may wait until they are accepted, also while a new router starts."""
LAST_WORDS_SECONDS = 0.5
"""How long the answers to requests that were given up may take; less than the launcher waits for the router's end."""


def main() -> None:
    config = RouterConfig.from_argv(sys.argv[1:])
    logs.configure(config.log_level, config.json_output)
    try:
        # Outside the event loop, which it would hold up: one of a vocabulary of 200,000 tokens takes a second, in which
        # SIGTERM ends the process at once.
        tokenizer = Tokenizer.load(config.tokenizer_json, config.validation_workers)
        uvloop.run(serve(config, tokenizer))
    except (TokenizerError, LimitError, InvalidArgument) as error:
        _refuse(config, error)
        sys.exit(USAGE_ERROR)
    except (FleetError, OSError) as error:
        _refuse(config, error)
        sys.exit(1)


def _refuse(config: RouterConfig, error: Exception) -> None:
    """Says in one line on stderr why the router can't serve; the launcher passes it on and does not repeat it."""
    if config.json_output:
        log.error("%s", error)
    else:
        print(f"router: {error}", file=sys.stderr)


async def serve(config: RouterConfig, tokenizer: Tokenizer) -> None:
    """Serves until it is asked to end and the last request is answered."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if config.api_key_file:
        # The launcher passes SIGHUP on after the first sign. The keys are not read yet, so there is nothing to do.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)
    launcher = LauncherLink(config.notices_fd, stop)
    with giving_signs(config.signs_fd) as tell:
        template = ChatTemplate.load(config.model_dir, config.tokenizer_config_path)
        fleet = GrpcFleet(config.shard_sockets)
        try:
            facts = await _unless(stop, fleet.describe())
            if facts is not None:
                with _tracing(config) as tracing:
                    parts = tokenizer, template, fleet, _within(facts, config), tracing
                    await _answer(config, *parts, launcher, partial(tell, Sign.READY), stop)
        finally:
            await fleet.close()
            tokenizer.close()
            if launcher.is_lost:
                remove_leftovers(Path(config.shard_sockets[0].removeprefix("unix:")).parent, config.keeps_folder)


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, _T]) -> _T | None:
    """Returns the result of `work`, or None if `stop` is set first: shards may load their model for minutes."""
    tasks = working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        stopping.cancel()


async def _answer(
    config: RouterConfig, tokenizer: Tokenizer, template: ChatTemplate | None, fleet: GrpcFleet, facts: Facts,
    tracing: "Tracing | None", launcher: LauncherLink, tell_ready: Callable[[], None], stop: asyncio.Event,
) -> None:
    """Serves until `stop` is set, then lets running requests finish; those left after the time for that fail."""
    limits = Limits.resolve(config, facts)
    adapters = _adapters(config, facts)
    metrics = Metrics(limits)
    engine = Engine(fleet, facts, limits, metrics, config.pipeline_depth, config.max_shard_downtime, adapters)
    launcher.tell(engine)
    info = ServerInfo(model_id=config.model_id, model_sha=config.revision,
                      version=importlib.metadata.version("penstock"),
                      compute_type=config.compute_type or environment.compute_type(facts))
    grammars = None if config.disable_grammar_support else GrammarCompiler(
        config.tokenizer_json, facts.vocab_size, facts.eos_token_ids)
    access = Access(Keys(config.api_key, config.api_key_file), Keys(config.metrics_key), config.cors_allow_origin)
    if config.api_key_file:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, access.api_keys)
    ssl_context = tls.server_context(config)
    app = make_app(Engines(engine), tokenizer, limits, metrics, info, grammars, template, access=access,
                   adapters=adapters, allows_runtime_adapters=config.allow_runtime_adapters,
                   more_routes=vertex_routes(config.vertex_predict_route, config.vertex_health_route),
                   outer=[tracing.middleware] if tracing else [])
    drain_seconds = config.graceful_termination_timeout + LAST_WORDS_SECONDS
    if config.grpc_port is not None:
        from penstock.router.rpc.server import add_rpc  # which imports more of gRPC

        add_rpc(app, config, access, tracing, drain_seconds)
    runner = make_runner(app, shutdown_timeout=drain_seconds)
    await runner.setup()
    if grammars is not None:
        await grammars.warm()
    listener = socket.socket(fileno=config.listen_fd)
    await Site(runner, listener, backlog=BACKLOG, ssl_context=ssl_context).start()
    tell_ready()
    settle()
    _announce(config, facts, engine.limits)
    await stop.wait()
    # Otherwise aiohttp would break the connections off without a word, after twice its timeout.
    overdue = asyncio.get_running_loop().call_later(config.graceful_termination_timeout, engine.give_up)
    await runner.cleanup()
    overdue.cancel()
    if grammars is not None:
        grammars.close()


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


def _within(facts: Facts, config: RouterConfig) -> Facts:
    """Returns the facts with no more KV blocks than `--max-batch-total-tokens` allows."""
    if config.max_batch_total_tokens is None:
        return facts
    return facts.within(config.max_batch_total_tokens // facts.block_size)


def _adapters(config: RouterConfig, facts: Facts) -> Registry:
    """Returns the adapters that requests may name. Raises InvalidArgument if there are any and the model takes none."""
    if (config.adapters or config.allow_runtime_adapters) and not facts.takes_adapters:
        option = "lora_adapters" if config.adapters else "allow_runtime_adapters"
        raise InvalidArgument(f"`{option}`: {config.model_id}, as it is computed here ({facts.implementation}), takes "
                              "no adapters; merge one into the model, or leave the option out")
    return Registry(config.adapters, config.model_id, facts.dtype, config.max_adapter_memory)


def _announce(config: RouterConfig, facts: Facts, limits: Limits) -> None:
    host = "localhost" if config.hostname in ("0.0.0.0", "::", "127.0.0.1") else config.hostname
    scheme = "http" if config.ssl_certfile is None else "https"
    log.info("%s in %s on %d shard%s; %d KV tokens, at most %d a request, %d a step; numerics %s; %s", config.model_id,
             facts.dtype, facts.world_size, "s" * (facts.world_size > 1), facts.capacity, limits.max_total_tokens,
             limits.max_batch_prefill_tokens, facts.numerics,
             "no answer changes with the batch" if facts.is_deterministic else
             "answers may change with the batch, which --deterministic prevents")
    if found := promise(limits, facts):
        log.info("%s", found)
    log.info("Serving at %s://%s:%d, for example:\n\n    curl %s://%s:%d/generate -H 'content-type: application/json' "
             "-d '{\"inputs\": \"def open(path):\", \"parameters\": {\"max_new_tokens\": 20}}'\n",
             scheme, host, config.port, scheme, host, config.port)


if __name__ == "__main__":
    main()
