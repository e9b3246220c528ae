"""The command `text-generation-launcher`, which runs the processes of one group until they end."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

import click

from penstock.checkpoints.tokenizers.place import tokenizer_of
from penstock.launcher import draft_model, hub, sigterm, ulimits, without_effect
from penstock.launcher.adapters import find_all
from penstock.launcher.config import LauncherConfig
from penstock.launcher.group import GroupKeeper
from penstock.launcher.group_options import refuse_options_of_shards
from penstock.launcher.hub import Checkpoint
from penstock.launcher.option_types import Command
from penstock.launcher.options import OPTIONS
from penstock.launcher.programs import group_programs, num_routers, router_programs
from penstock.launcher.routers import OwnRouters
from penstock.launcher.shard_memory import ShardMemory, shard_memories
from penstock.launcher.socket_folder import SocketFolder, socket_folder
from penstock.launcher.supervisor import NoGroup, Supervisor
from penstock.router import environment, logs, tls
from penstock.router.adapters.source import AdapterSource
from penstock.router.notices import Notice, NoticePipe
from penstock.system.arguments import InvalidArgument

log = logging.getLogger(__name__)

LEAST_SILENCE_SECONDS = 5.0
"""How long the router may at least be silent, however short steps are: a busy machine may hold it up for seconds."""


def serve(**options: Any) -> None:
    """Serve a model with Penstock, by the command line of Text Generation Inference's launcher."""
    if options["groups"] is not None:
        refuse_options_of_shards(click.get_current_context())  # before they are held against one another
    config = LauncherConfig.from_options(options)
    logs.configure(config.launcher_log_level, config.json_output)
    without_effect.tell(click.get_current_context(), config.unread_log_levels, config.unread_variables)
    if config.env:
        log.info("Runtime environment:\n%s", environment.describe())
    sys.exit(launch(config))


main = click.version_option(package_name="penstock", message="%(prog)s %(version)s")(
    Command("text-generation-launcher", params=[*OPTIONS], callback=serve, help=serve.__doc__))


def launch(config: LauncherConfig) -> int:
    """Finds the model and runs the group until it ends; returns the exit code.

    Raises InvalidArgument if the group can't be started.
    """
    ulimits.check(config)
    if config.api_key_file is not None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a router, which will read the file
    with ExitStack() as stack:
        listener = stack.enter_context(bind("port", config.hostname, config.port))
        if config.grpc_port is not None:
            bind("grpc_port", config.hostname, config.grpc_port).close()
        if config.master_port is not None and config.num_shard > 1:
            bind("master_port", config.master_addr, config.master_port).close()
        tls.server_context(config)
        found = hub.find(config.model_id, config.revision, config.huggingface_hub_cache,
                         logs.has_bars(config.json_output), needs_weights=config.groups is None)
        draft = draft_model.find(config, logs.has_bars(config.json_output))
        adapters = find_all(config.lora_adapters, config.model_id, config.huggingface_hub_cache,
                            logs.has_bars(config.json_output))
        sigterm.unwind()
        folder = stack.enter_context(socket_folder(config.shard_uds_path, config.num_shard))
        checkpoint = stack.enter_context(hub.in_directory(found, folder.path))
        checkpoint = replace(checkpoint, tokenizer=tokenizer_of(checkpoint.path), draft=draft)
        if draft is not None and checkpoint.tokenizer is not None:
            draft_model.check_tokens(draft, checkpoint.tokenizer)
        memories = stack.enter_context(shard_memories(0 if config.groups else config.num_shard))
        if config.groups is None:
            log.info("Starting %d shard%s of %s", config.num_shard, "s" * (config.num_shard > 1), config.model_id)
        else:
            log.info("Serving %s by the groups of %s", config.model_id, config.groups)
        return asyncio.run(_supervise(config, checkpoint, adapters, folder, listener, memories))


async def _supervise(
    config: LauncherConfig, checkpoint: Checkpoint, adapters: Sequence[AdapterSource], folder: SocketFolder,
    listener: socket.socket, memories: Sequence[ShardMemory],
) -> int:
    """Runs the processes until they are to end; returns the exit code."""
    with ExitStack() as stack:
        notices = [stack.enter_context(closing(NoticePipe())) for _ in range(num_routers(config))]
        sockets = [folder.socket(rank) for rank in config.ranks]
        group = NoGroup() if config.groups else GroupKeeper(
            group_programs(config, checkpoint, folder, memories), [f"unix:{path}" for path in sockets],
            config.step_timeout, config.startup_timeout, memories,
            on_progress=partial(_tell_all, notices, Notice.LOADING))
        programs = router_programs(
            config, checkpoint, folder, listener.fileno(), [each.fd for each in notices], adapters)
        routers = OwnRouters(
            programs, listener, notices, drain_timeout=config.graceful_termination_timeout,
            startup_timeout=config.startup_timeout, silence_limit=max(config.step_timeout, LEAST_SILENCE_SECONDS),
            can_reload=config.api_key_file is not None)
        return await Supervisor(group, routers).run()


def _tell_all(pipes: Sequence[NoticePipe], notice: Notice) -> None:
    for pipe in pipes:
        pipe.send(notice)


def bind(name: str, hostname: str, port: int) -> socket.socket:
    """Returns a socket at the port, before a large model is loaded; clients are refused until a router listens on it.

    Raises InvalidArgument if the port is taken.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in hostname else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((hostname, port))
    except OSError as error:
        listener.close()
        raise InvalidArgument(f"`{name}`: cannot listen on {hostname} port {port}: {error.strerror}") from error
    return listener
