"""The command `text-generation-launcher`, which runs the processes of one group until they end."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import click

from penstock.launcher import sigterm, ulimits, without_effect
from penstock.launcher.group_options import refuse_options_of_shards
from penstock.launcher.model_groups import Leaving, ModelGroup, ModelGroups
from penstock.launcher.option_types import Command
from penstock.launcher.options import OPTIONS
from penstock.launcher.placed_model import Found, PlacedModel
from penstock.launcher.programs import num_routers, router_programs
from penstock.launcher.resting import RestingShards
from penstock.launcher.routers import OwnRouters
from penstock.launcher.served_models import ServedModels, served_models
from penstock.launcher.socket_folder import socket_folder
from penstock.launcher.supervisor import AnyGroup, NoGroup, Supervisor
from penstock.router import environment, logs, tls
from penstock.router.config import ServedModel
from penstock.router.models.orders import OrderPipe
from penstock.router.notices import Notice, NoticePipe
from penstock.system.arguments import InvalidArgument
from penstock.system.settings import ServerSettings

log = logging.getLogger(__name__)

LEAST_SILENCE_SECONDS = 5.0
"""How long the router may at least be silent, however short steps are: a busy machine may hold it up for seconds."""


def serve(**options: Any) -> None:
    """Serve a model with Penstock, by the command line of Text Generation Inference's launcher."""
    if options["groups"] is not None:
        refuse_options_of_shards(click.get_current_context())  # before they are held against one another
    models = served_models(click.get_current_context(), options)
    config = models.first
    logs.configure(config.launcher_log_level, config.json_output)
    without_effect.tell(click.get_current_context(), config.unread_log_levels, config.unread_variables)
    if config.env:
        log.info("Runtime environment:\n%s", environment.describe())
    sys.exit(launch(models))


main = click.version_option(package_name="penstock", message="%(prog)s %(version)s")(
    Command("text-generation-launcher", params=[*OPTIONS], callback=serve, help=serve.__doc__))


def launch(models: ServedModels) -> int:
    """Finds the models and runs their groups until they end; returns the exit code.

    Raises InvalidArgument if a group can't be started.
    """
    config = models.first
    ulimits.check(config)
    if can_reload(config):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a router, which will read the files
    with ExitStack() as stack:
        listener = stack.enter_context(bind("port", config.hostname, config.port))
        if config.grpc_port is not None:
            bind("grpc_port", config.hostname, config.grpc_port).close()
        for each in (config, *(other.config for other in models.others)):
            if each.master_port is not None and each.num_shard > 1:
                bind("master_port", each.master_addr, each.master_port).close()
        tls.server_context(config)
        own = [] if models.is_gateway else [Found.find(config)]
        found = [Found.find(other.config) for other in models.others]
        sigterm.unwind()
        folder = stack.enter_context(socket_folder(config.shard_uds_path, config.num_shard))
        first = stack.enter_context(own[0].placed(folder)) if own else PlacedModel.nowhere(config, folder)
        others = [stack.enter_context(each.placed_below(folder.path / f"model-{number}"))
                  for number, each in enumerate(found, 1)]
        check_memory(models, first, others)
        return asyncio.run(_supervise(models, first, others, listener))


def can_reload(config: ServerSettings) -> bool:
    """Tells whether there is a file that is read again on SIGHUP."""
    return config.api_key_file is not None or config.prices is not None


def check_memory(models: ServedModels, first: PlacedModel, others: Sequence[PlacedModel]) -> None:
    """Raises InvalidArgument if a model can never be loaded beside the first and those that are pinned."""
    most = models.first.max_model_memory
    if most is None:
        return
    always = first.num_bytes + sum(
        placed.num_bytes for served, placed in zip(models.others, others, strict=True) if served.is_pinned)
    for served, placed in zip(models.others, others, strict=True):
        needed = always + (0 if served.is_pinned else placed.num_bytes)
        if needed > most:
            raise InvalidArgument(f"`max_model_memory` must be >= {needed} bytes, for {placed.config.served_name} and "
                                  f"the models that are always loaded. Given: {most}")


async def _supervise(
    models: ServedModels, first: PlacedModel, others: Sequence[PlacedModel], listener: socket.socket
) -> int:
    """Runs the processes until they are to end; returns the exit code."""
    config = models.first
    with ExitStack() as stack:
        notices = [stack.enter_context(closing(NoticePipe())) for _ in range(num_routers(config))]
        group: AnyGroup = NoGroup() if models.is_gateway else first.group(partial(_tell_all, notices, Notice.LOADING))
        several: dict[str, Any] = {}
        if models.are_several:
            orders = stack.enter_context(closing(OrderPipe()))
            groups: dict[str, ModelGroup] = {}
            leaving = Leaving()
            resting = None if config.keep_weights is None else RestingShards(config.keep_weights)
            served: list[ServedModel] = []
            for settings, placed in zip(models.others, others, strict=True):
                pipe = stack.enter_context(closing(NoticePipe()))
                name = str(placed.config.served_name)
                keeper = placed.group(partial(pipe.send, Notice.LOADING), resting, is_on_demand=True)
                groups[name] = ModelGroup(name, keeper, pipe, leaving)
                served.append(ServedModel(config=placed.router(pipe.fd), is_pinned=settings.is_pinned,
                                          keep_alive=settings.keep_alive))
            group = ModelGroups(group, groups, orders, resting)
            several = {"others": tuple(served), "aliases": models.aliases, "shadows": models.shadows,
                       "orders_fd": orders.fd, "elsewhere": models.elsewhere, "fallbacks": models.fallbacks,
                       "is_gateway": models.is_gateway, "pipelines": models.pipelines, "num_bytes": first.num_bytes}
        routers = OwnRouters(
            router_programs(config, first.checkpoint, first.folder, listener.fileno(), [each.fd for each in notices],
                            first.adapters, **several),
            listener, notices, drain_timeout=config.graceful_termination_timeout,
            startup_timeout=config.startup_timeout, silence_limit=max(config.step_timeout, LEAST_SILENCE_SECONDS),
            can_reload=can_reload(config))
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
