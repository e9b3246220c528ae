"""A model and the parts of a router that answer with it, from their start to their end, in one event loop."""

import asyncio
import logging
import re
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from penstock.checkpoints.tokenizers.place import tokenizer_of
from penstock.launcher import draft_model, hub
from penstock.launcher.adapters import find_all
from penstock.launcher.config import LauncherConfig
from penstock.launcher.group import GroupKeeper, Loss
from penstock.launcher.hub import Checkpoint
from penstock.launcher.programs import group_programs, router_config
from penstock.launcher.shard_memory import shard_memories
from penstock.launcher.socket_folder import SocketFolder, socket_folder
from penstock.launcher.supervisor import NoGroup, background
from penstock.offline.event_loop import CLOSED, in_daemon_thread
from penstock.offline.failures import NoShards, Refused
from penstock.router import logs
from penstock.router.adapters.source import AdapterSource
from penstock.router.chat.template import ChatTemplate
from penstock.router.config import RouterConfig
from penstock.router.generation.service import Service
from penstock.router.groups.finding import Finding
from penstock.router.groups.groups import Groups
from penstock.router.metrics.metrics import Metrics
from penstock.router.parts import Parts, load_template, load_tokenizer
from penstock.router.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

T = TypeVar("T")


class Session:
    """Starts the shards of a model, unless `groups` of the settings names others, and the parts of a router that answer
    with them.

    `live` runs until it is cancelled; then no process, socket or memory is left. `tokenizer` is the name of a model
    whose tokenizer and chat template are used instead of the model's own.
    """

    def __init__(self, config: LauncherConfig, tokenizer: str | None = None) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._engine: Groups | None = None
        self.opened: Future[Service] = Future()
        """Has the service once it can answer, or the error for which it never will."""
        self.model_dir = Path()
        """Where the model's files are, once it can answer."""
        self.failure: NoShards | None = None
        """Why nothing is answered any more."""

    @property
    def download_dir(self) -> Path | None:
        """Where files of the Hub are kept; None for the usual place."""
        return self._config.huggingface_hub_cache

    async def live(self) -> None:
        """Serves until it is cancelled."""
        try:
            async with AsyncExitStack() as stack:
                service, works = await self._open(stack)
                self.opened.set_result(service)
                await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
                self._fail(next(work for work in works if work.done()), service)
                await asyncio.get_running_loop().create_future()  # until it is cancelled
        except BaseException as error:
            if self.opened.done():
                raise
            is_closed = isinstance(error, asyncio.CancelledError)  # whose waiters were not cancelled themselves
            self.opened.set_exception(RuntimeError(CLOSED) if is_closed else error)

    def _fail(self, work: asyncio.Task[Any], service: Service) -> None:
        """Notes why nothing can be answered any more, after the shards were given up or the engine has failed."""
        result = work.exception() or work.result()
        self.failure = _no_shards(result) if isinstance(result, Loss) else NoShards(f"the engine failed: {result!r}")
        log.error("%s", self.failure)
        service.engine.give_up()

    async def _open(self, stack: AsyncExitStack) -> tuple[Service, list[asyncio.Task[Any]]]:
        """Returns the service, and the tasks that run as long as it can answer."""
        checkpoint, adapters, spoken = await self._find()
        folder = stack.enter_context(socket_folder(self._config.shard_uds_path, self._config.num_shard))
        checkpoint = stack.enter_context(hub.in_directory(checkpoint, folder.path))
        checkpoint = replace(checkpoint, tokenizer=tokenizer_of(spoken or checkpoint.path))
        config = router_config(self._config, checkpoint, folder, -1, -1, adapters)
        self.model_dir = config.model_dir
        if spoken is not None:
            config = replace(config, model_dir=spoken)
        keeping = await stack.enter_async_context(background(self._keep_shards(checkpoint, folder)))
        service = await _unless_ended(keeping, self._make_service(stack, config))
        driving = await stack.enter_async_context(background(service.engine.run()))
        return service, [keeping, driving]

    async def _find(self) -> tuple[Checkpoint, Sequence[AdapterSource], Path | None]:
        """Finds the files of the model, its draft model, the adapters and another tokenizer, and downloads those that
        aren't here."""
        config = self._config
        has_bars = logs.has_bars(config.json_output)
        found: Checkpoint = await in_daemon_thread(partial(
            hub.find, config.model_id, config.revision, config.huggingface_hub_cache, has_bars,
            needs_weights=config.groups is None))
        draft = await in_daemon_thread(draft_model.find, config, has_bars)
        found = replace(found, draft=draft)
        adapters: Sequence[AdapterSource] = await in_daemon_thread(
            find_all, config.lora_adapters, config.model_id, config.huggingface_hub_cache, has_bars)
        if self._tokenizer is None:
            return found, adapters, None
        spoken: Checkpoint = await in_daemon_thread(partial(
            hub.find, self._tokenizer, None, config.huggingface_hub_cache, has_bars, needs_weights=False))
        return found, adapters, spoken.path

    async def _keep_shards(self, checkpoint: Checkpoint, folder: SocketFolder) -> Loss | None:
        """Keeps the shards running, if they are to be ours. Returns how they were lost for good."""
        config = self._config
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if config.groups is not None:
            await NoGroup().keep(end)
            return None
        with shard_memories(config.num_shard) as memories:
            sockets = [f"unix:{folder.socket(rank)}" for rank in config.ranks]
            group = GroupKeeper(
                group_programs(config, checkpoint, folder, memories), sockets, config.step_timeout,
                config.startup_timeout, memories, on_progress=self._keep_waiting)
            return await group.keep(end)

    def _keep_waiting(self) -> None:
        if self._engine is not None:
            self._engine.keep_waiting()

    async def _make_service(self, stack: AsyncExitStack, config: RouterConfig) -> Service:
        """Waits for the group, and makes the parts that answer with it."""
        tokenizer: Tokenizer = await in_daemon_thread(load_tokenizer, config)
        stack.callback(tokenizer.close)
        template: ChatTemplate | None = await in_daemon_thread(load_template, config)
        if template is not None:
            stack.callback(template.close)
        finding = Finding(config)
        stack.push_async_callback(finding.close)
        facts = await finding.first()
        parts = Parts.made(config, finding, facts, lambda _, limits: Metrics(limits))
        stack.callback(parts.close)
        self._engine = parts.engine
        await parts.warm()
        return parts.service(tokenizer, template)


async def _unless_ended(keeping: "asyncio.Task[Loss | None]", work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`. Raises NoShards if the shards are lost for good first."""
    async with background(work) as working:
        await asyncio.wait([keeping, working], return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and (loss := keeping.result()) is not None:
            raise _no_shards(loss)
        return await working


def _no_shards(loss: Loss) -> NoShards:
    """Returns the error for shards that are lost for good."""
    if loss.is_refusal:
        sentences = [re.sub(r"^shard \d+: ", "", line) for cause in loss.causes for line in cause.last_lines[-1:]]
        return Refused(next(iter(sentences), str(loss)))
    return NoShards("\n".join(f"{cause}: {cause.last_lines[-1]}" if cause.last_lines else str(cause)
                              for cause in loss.causes))
