"""The command `penstock group`, which runs the shards of a group that routers elsewhere reach over TCP."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import click

from penstock.router import environment, logs
from penstock.router.launcher import draft_model, hub, sigterm, ulimits
from penstock.router.launcher.config import LauncherConfig
from penstock.router.launcher.group import Group
from penstock.router.launcher.group_options import completed
from penstock.router.launcher.group_supervisor import GroupSupervisor
from penstock.router.launcher.hub import Checkpoint
from penstock.router.launcher.launch import bind
from penstock.router.launcher.programs import group_programs
from penstock.router.launcher.shard_memory import ShardMemory, shard_memories
from penstock.router.launcher.socket_folder import SocketFolder, socket_folder

log = logging.getLogger(__name__)


def group(**_: Any) -> None:
    """Run the shards of MODEL as a group without a router, which routers reach over TCP by `penstock serve --groups`.

    MODEL is a directory, a GGUF file or a name on the Hugging Face Hub.
    """
    config = LauncherConfig.from_options(completed(click.get_current_context()))
    logs.configure(config.log_level, config.json_output)
    if config.env:
        log.info("Runtime environment:\n%s", environment.describe())
    sys.exit(launch(config))


def launch(config: LauncherConfig) -> int:
    """Finds the model and runs its shards until they are to end; returns the exit code.

    Raises InvalidArgument if the group can't be started.
    """
    place = config.place
    assert place is not None
    ulimits.check(config)
    for rank in place.ranks:
        bind("listen", place.host, place.port + rank - place.ranks[0]).close()
    if config.master_port is not None and config.num_shard > 1:
        bind("master_port", config.master_addr, config.master_port).close()
    has_bars = logs.has_bars(config.json_output)
    found = hub.find(config.model_id, config.revision, config.huggingface_hub_cache, has_bars)
    draft = draft_model.find(config, has_bars)
    sigterm.unwind()
    with ExitStack() as stack:
        folder = stack.enter_context(socket_folder(None, place.shards_here))
        checkpoint = replace(stack.enter_context(hub.in_directory(found, folder.path)), draft=draft)
        memories = stack.enter_context(shard_memories(place.shards_here))
        log.info("Starting %d shard%s of %s, group %s, at %s", place.shards_here, "s" * (place.shards_here > 1),
                 config.model_id, place.name, ", ".join(map(place.listens_at, place.ranks)))
        return asyncio.run(_supervise(config, checkpoint, folder, memories))


async def _supervise(
    config: LauncherConfig, checkpoint: Checkpoint, folder: SocketFolder, memories: Sequence[ShardMemory]
) -> int:
    place = config.place
    assert place is not None
    targets = [place.asked_at(rank) for rank in place.ranks]
    programs = group_programs(config, checkpoint, folder, memories, lambda: shards.is_draining)
    shards = Group(programs, targets, config.step_timeout, config.startup_timeout, memories, tls=config.shard_tls)
    return await GroupSupervisor(shards, targets[0], config.shard_tls, config.graceful_termination_timeout).run()
