"""The command `penstock group`, which runs the shards of a group that routers elsewhere reach over TCP."""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import click

from penstock.launcher import draft_model, hub, sigterm, ulimits, without_effect
from penstock.launcher.config import LauncherConfig
from penstock.launcher.group import GroupKeeper
from penstock.launcher.group_options import completed
from penstock.launcher.hub import Checkpoint
from penstock.launcher.launch import bind
from penstock.launcher.leaving import drain
from penstock.launcher.node_member import Member
from penstock.launcher.nodes import Alone, Leader, Nodes
from penstock.launcher.programs import group_programs
from penstock.launcher.routers import OtherRouters
from penstock.launcher.shard_memory import ShardMemory, shard_memories
from penstock.launcher.socket_folder import SocketFolder, socket_folder
from penstock.launcher.supervisor import Supervisor, background
from penstock.router import environment, logs
from penstock.system.arguments import InvalidArgument
from penstock.system.setting import Who
from penstock.system.settings import told_to

log = logging.getLogger(__name__)


def group(**_: Any) -> None:
    """Run the shards of MODEL as a group without a router, which routers reach over TCP by `penstock serve --groups`.

    MODEL is a directory, a GGUF file or a name on the Hugging Face Hub.
    """
    context = click.get_current_context()
    config = LauncherConfig.from_options(completed(context))
    logs.configure(config.launcher_log_level, config.json_output)
    without_effect.tell(context, config.unread_log_levels, config.unread_variables)
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
    has_bars = logs.has_bars(config.json_output)
    found = hub.find(config.model_id, config.revision, config.huggingface_hub_cache, has_bars)
    draft = draft_model.find(config, has_bars)
    sigterm.unwind()
    with ExitStack() as stack:
        meeting = _meeting(config, stack)
        folder = stack.enter_context(socket_folder(None, place.shards_here))
        checkpoint = replace(stack.enter_context(hub.in_directory(found, folder.path)), draft=draft)
        memories = stack.enter_context(shard_memories(place.shards_here))
        log.info("Starting %d shard%s of %s, group %s, at %s", place.shards_here, "s" * (place.shards_here > 1),
                 config.model_id, place.name, ", ".join(map(place.listens_at, place.ranks)))
        return asyncio.run(_supervise(config, checkpoint, folder, memories, meeting))


def _meeting(config: LauncherConfig, stack: ExitStack) -> socket.socket | None:
    """Returns the socket at which this machine's launcher meets those of others, if it is the first of several. Raises
    InvalidArgument if a port is taken that will be needed."""
    place = config.place
    assert place is not None
    if place.nnodes == 1:
        if config.master_port is not None and config.num_shard > 1:
            bind("master_port", config.master_addr, config.master_port).close()
        return None
    if place.node_rank:
        return None
    meeting = stack.enter_context(bind("master_port", config.master_addr, config.master_port or 0))
    try:
        meeting.listen()
    except OSError as error:  # two may bind a port as long as neither listens
        raise InvalidArgument(f"`master_port`: cannot listen at {config.master_addr} port {config.master_port}: "
                              f"{error.strerror}") from error
    return meeting


async def _supervise(
    config: LauncherConfig, checkpoint: Checkpoint, folder: SocketFolder, memories: Sequence[ShardMemory],
    meeting: socket.socket | None,
) -> int:
    place = config.place
    assert place is not None
    targets = [place.asked_at(rank) for rank in place.ranks]
    settings = told_to(Who.ALIKE, config)
    drain_here = partial(drain, targets[0], config.shard_tls, config.graceful_termination_timeout)

    async def drain_for_another() -> None:
        """Has the group drain until its shards are started again."""
        shards.forgets_drain = shards.forgets_drain or not shards.is_draining  # as when another ends just before
        await drain_here()

    async with AsyncExitStack() as stack:
        nodes: Nodes = Alone()
        drain_all: Callable[[], Coroutine[Any, Any, None]] = drain_here
        if meeting is not None and place.master is not None:
            leader = nodes = Leader(place, place.master[0], meeting, config.shard_tls, drain_for_another, settings)
            await stack.enter_async_context(background(leader.serve()))
        elif place.master is not None:
            member = nodes = Member(place, place.master, config.shard_tls, settings)
            stack.push_async_callback(member.close)
            drain_all = partial(_within, member.drain, config.graceful_termination_timeout)
        programs = group_programs(config, checkpoint, folder, memories, lambda: shards.is_draining,
                                  lambda: nodes.started)
        shards = GroupKeeper(programs, targets, config.step_timeout, config.startup_timeout, memories,
                             tls=config.shard_tls, nodes=nodes)
        return await Supervisor(shards, OtherRouters(shards, drain_all)).run()


async def _within(work: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(work(), seconds)
