"""`python -m penstock.router` waits for the group, opens the HTTP port, and serves until SIGTERM."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import uvloop

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router import logs
from penstock.router.app import end_router
from penstock.router.config import RouterConfig
from penstock.router.fleet.errors import FleetError
from penstock.router.front.front_server import FrontServer
from penstock.router.front.remote_engine import RemoteEngine
from penstock.router.generation.around import Around
from penstock.router.generation.service import Service
from penstock.router.groups.finding import Finding
from penstock.router.launcher_link import LauncherLink
from penstock.router.limits import LimitError, Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.metrics.processes import Processes
from penstock.router.metrics.triton import TritonNames
from penstock.router.metrics.vllm import VllmNames
from penstock.router.models.gateway import gateway_service, no_tokenizer
from penstock.router.notices import giving_signs
from penstock.router.parts import Parts, given_templates, load_template, load_tokenizer, server_info, text_rules
from penstock.router.serving import LAST_WORDS_SECONDS, answer, describe
from penstock.router.text.encoding import TokenizerError
from penstock.router.text.tokenizer import Tokenizer
from penstock.system.arguments import USAGE_ERROR, InvalidArgument
from penstock.system.heap import freeze_heap
from penstock.system.leftovers import remove_leftovers
from penstock.system.names import as_given
from penstock.system.signs import Sign

log = logging.getLogger("penstock.router")

_T = TypeVar("_T")


def main() -> None:
    config = RouterConfig.from_argv(sys.argv[1:])
    logs.configure(config.log_level, config.json_output, has_requests=not config.no_request_logs)
    try:
        # Outside the event loop, which it would hold up: one of a vocabulary of 200,000 tokens takes a second, in which
        # SIGTERM ends the process at once.
        tokenizer = no_tokenizer() if config.is_gateway else load_tokenizer(config)
        uvloop.run(serve(config, tokenizer))
    except (TokenizerError, LimitError, InvalidArgument) as error:
        _refuse(config, error)
        sys.exit(USAGE_ERROR)
    except (FleetError, OSError) as error:
        _refuse(config, error)
        sys.exit(1)


def _refuse(config: RouterConfig, error: Exception) -> None:
    """Says in one line on stderr why the router can't serve; the launcher passes it on and does not repeat it."""
    sentence = as_given(str(error), config.model_dir, config.made_of)
    if config.json_output:
        log.error("%s", sentence)
    else:
        print(f"router: {sentence}", file=sys.stderr)


async def serve(config: RouterConfig, tokenizer: Tokenizer) -> None:
    """Serves until it is asked to end and the last request is answered."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if config.api_key_file or config.prices:
        # The launcher passes SIGHUP on after the first sign. The files are not read yet, so there is nothing to do.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)
    launcher = LauncherLink(config.notices_fd, stop)
    with giving_signs(config.signs_fd) as tell:
        process = RouterProcess(config, tokenizer, launcher, partial(tell, Sign.READY), stop)
        try:
            await (process.answer() if config.role == "front" else process.drive())
        finally:
            tokenizer.close()
            if launcher.is_lost and config.role != "front" and config.folder is not None:
                for other in config.others:
                    if other.config.folder is not None:
                        remove_leftovers(other.config.folder, keeps_folder=False)
                remove_leftovers(config.folder, config.keeps_folder)


@dataclass(frozen=True, slots=True)
class RouterProcess:
    """One process of the router: its settings, what binds it to the launcher, and what it is told to stop by."""

    config: RouterConfig
    tokenizer: Tokenizer
    launcher: LauncherLink
    tell_ready: Callable[[], None]
    stop: asyncio.Event

    async def drive(self) -> None:
        """Waits for the group and drives it; answers clients itself, or has fronts answer them."""
        config = self.config
        if config.is_gateway:
            await answer(config, gateway_service(config, self.tokenizer, partial(_metrics, config)), self.tell_ready,
                         self.stop)
            return
        template = None if config.role == "engine" else load_template(config)
        finding = Finding(config)
        try:
            facts = await self._unless_stopped(finding.first())
            if facts is None:
                return
            parts = Parts.made(config, finding, facts, partial(_metrics, config))
            self.launcher.tell(parts.engine)
            await parts.warm()
            if config.role == "engine":
                await self._serve_fronts(FrontServer(
                    parts.engine, parts.adapters, parts.grammars, self.tokenizer, config.explained_requests))
            else:
                await answer(config, parts.service(self.tokenizer, template), self.tell_ready, self.stop)
            parts.close()
        finally:
            await finding.close()

    async def answer(self) -> None:
        """Answers clients with what the engine's process computes."""
        config = self.config
        assert config.engine_socket is not None
        template = load_template(config)
        engine = RemoteEngine(config.engine_socket, config.max_shard_downtime, config.poison_memory)
        self.launcher.tell(engine)
        if not await self._unless_stopped(engine.connect()):
            return
        # The launcher starts the engine's process no more once it has told this one to end.
        ending = asyncio.create_task(self._when_stopped(partial(engine.keep_waiting, 0.0)))
        metrics = _metrics(config, engine.facts, engine.limits)
        grammars = None if config.disable_grammar_support else engine.grammars
        service = Service(
            engine, self.tokenizer, metrics, server_info(config, engine.facts), engine.poison, grammars, template,
            engine.adapters, config.allow_runtime_adapters, given_templates(config), text_rules(config),
            Around(rates=engine.rates))
        await answer(config, service, self.tell_ready, self.stop, engine.stories)
        await ending

    async def _when_stopped(self, act: Callable[[], None]) -> None:
        await self.stop.wait()
        act()

    async def _serve_fronts(self, server: FrontServer) -> None:
        """Serves fronts until it is to stop, and the last of them has left or the time for that is over."""
        engine, config = server.engine, self.config
        assert config.engine_socket is not None
        driving = asyncio.create_task(engine.run(), name="engine")
        driving.add_done_callback(end_router)
        await server.start(config.engine_socket)
        self.tell_ready()
        freeze_heap()
        describe(config, engine.facts, engine.limits)
        await self.stop.wait()
        # Fronts that are to end, too, answer within that time; others go on with the next process, and at once if the
        # engine has failed.
        left = asyncio.create_task(server.until_left())
        await asyncio.wait([left, driving], timeout=config.graceful_termination_timeout + LAST_WORDS_SECONDS,
                           return_when=asyncio.FIRST_COMPLETED)
        await server.stop()
        for task in (left, driving):
            task.cancel()
        await asyncio.wait([left, driving])

    async def _unless_stopped(self, work: Coroutine[None, None, _T]) -> _T | None:
        """Returns the result of `work`, or None if it is to stop first: shards may load their model for minutes."""
        tasks = working, stopping = asyncio.create_task(work), asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            stopping.cancel()


def _metrics(config: RouterConfig, facts: Facts, limits: Limits) -> Metrics:
    """Returns the series of this process and, since the launcher has started it, of all that the launcher runs."""
    return Metrics(limits, config.metrics_folder, config.member, processes=Processes(os.getppid()),
                   vllm=VllmNames(config.name) if config.vllm_metrics else None,
                   triton=TritonNames(config.name) if config.triton_metrics else None,
                   has_tei=Task.GENERATE not in facts.tasks)


if __name__ == "__main__":
    main()
