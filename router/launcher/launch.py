"""The command `text-generation-launcher`, which runs the processes of one group until they end."""

import asyncio
import itertools
import json
import logging
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from penstock.router import environment, logs, tls
from penstock.router.config import InvalidArgument
from penstock.router.launcher import hub
from penstock.router.launcher.config import LauncherConfig
from penstock.router.launcher.group import Group
from penstock.router.launcher.hub import Checkpoint
from penstock.router.launcher.option_types import NOTES, Command
from penstock.router.launcher.options import OPTIONS
from penstock.router.launcher.processes import Program
from penstock.router.launcher.shard_memory import ShardMemory, shard_memories
from penstock.router.launcher.supervisor import Supervisor

log = logging.getLogger(__name__)

SHARD_SETTINGS = (
    "model_id", "dtype", "kv_memory", "kv_cache_dtype", "block_size", "device", "cuda_memory_fraction", "cuda_graphs",
    "deterministic", "watermark_gamma", "watermark_delta", "threads", "otlp_endpoint", "otlp_service_name",
    "json_output")
"""The launcher's settings that a shard is told by the same names; None leaves it to the shard."""


def serve(**options: Any) -> None:
    """Serve a model with Penstock, by the command line of Text Generation Inference's launcher."""
    config = LauncherConfig.from_options(options)
    logs.configure(config.log_level, config.json_output)
    for note in click.get_current_context().meta.get(NOTES, []):
        log.warning(note)
    if config.env:
        log.info("Runtime environment:\n%s", environment.describe())
    sys.exit(launch(config))


main = click.version_option(package_name="penstock", message="%(prog)s %(version)s")(
    Command("text-generation-launcher", params=[*OPTIONS], callback=serve, help=serve.__doc__))


def launch(config: LauncherConfig) -> int:
    """Finds the model and runs the group until it ends; returns the exit code.

    Raises InvalidArgument if the group can't be started.
    """
    _check_port("port", config.hostname, config.port)
    if config.grpc_port is not None:
        _check_port("grpc_port", config.hostname, config.grpc_port)
    tls.server_context(config)
    checkpoint = hub.find(config.model_id, config.revision, config.huggingface_hub_cache)
    with ExitStack() as stack:
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-")))
        sockets = [stack.enter_context(_socket_path(f"{config.shard_uds_path or private / 'shard'}-{rank}"))
                   for rank in range(config.num_shard)]
        memories = stack.enter_context(shard_memories(config.num_shard))
        log.info("Starting %d shard%s of %s", len(sockets), "s" * (len(sockets) > 1), config.model_id)
        return asyncio.run(_supervise(
            make_group(config, checkpoint, sockets, private, memories), router_program(config, checkpoint, sockets),
            config.graceful_termination_timeout, config.api_key_file is not None))


async def _supervise(group: Group, router: Program, drain_timeout: float, can_reload: bool) -> int:
    return await Supervisor(group, router, drain_timeout, can_reload).run()


def make_group(
    config: LauncherConfig, checkpoint: Checkpoint, sockets: Sequence[Path], private: Path,
    memories: Sequence[ShardMemory],
) -> Group:
    """Makes the group that serves a checkpoint and keeps its files in the directory `private`."""
    starts = itertools.count()

    def programs() -> list[Program]:
        """Makes the shards' programs with a rendezvous of their own; removes what killed shards left of theirs."""
        for file in private.glob("meet-*"):
            file.unlink()
        rendezvous = (f"tcp://{config.master_addr}:{config.master_port}" if config.master_port
                      else f"file://{private}/meet-{next(starts)}")
        return [shard_program(config, checkpoint, rank, path, rendezvous, memories[rank] if memories else None)
                for rank, path in enumerate(sockets)]

    return Group(programs, [f"unix:{path}" for path in sockets], config.step_timeout, memories)


def shard_program(config: LauncherConfig, checkpoint: Checkpoint, rank: int, socket_path: Path,
                  rendezvous: str, memory: ShardMemory | None = None) -> Program:
    settings = {name: getattr(config, name) for name in SHARD_SETTINGS} | {
        "model": str(checkpoint.path), "rank": rank, "world_size": config.num_shard, "listen": f"unix:{socket_path}",
        "rendezvous": rendezvous,
        "max_step_tokens": config.max_batch_prefill_tokens,
        "max_step_rows": config.max_batch_size or config.max_concurrent_requests, "parent_pid": os.getpid(),
        "memory_fd": memory.fd if memory else None,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    program = _program(f"shard {rank}", "shard", ["--config", json.dumps(given)], tells_ready=True)
    return replace(program, fds=[memory.fd] if memory else [])


def router_program(config: LauncherConfig, checkpoint: Checkpoint, sockets: Sequence[Path]) -> Program:
    router = config.for_router(model_dir=checkpoint.path, revision=checkpoint.revision,
                               shard_sockets=[f"unix:{path}" for path in sockets], parent_pid=os.getpid())
    return replace(_program("the router", "router", ["--config", router.to_json()]), environment=router.environment)


def _program(name: str, module: str, arguments: Sequence[str], tells_ready: bool = False) -> Program:
    """Makes a program of a module. With `-P`, a folder `penstock` in the current directory is not taken for ours."""
    return Program(name, [sys.executable, "-P", "-m", f"penstock.{module}", *arguments], tells_ready)


def _check_port(name: str, hostname: str, port: int) -> None:
    """Raises InvalidArgument if the port is taken, before a large model is loaded."""
    family = socket.AF_INET6 if ":" in hostname else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((hostname, port))
        except OSError as error:
            raise InvalidArgument(f"`{name}`: cannot listen on {hostname} port {port}: {error.strerror}") from error


@contextmanager
def _socket_path(name: str) -> Iterator[Path]:
    """Yields a path where a shard can make its socket; removes what is left there before and afterwards."""
    path = Path(name)
    _remove_stale(path)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    """Removes a socket that nobody listens on. Raises InvalidArgument if it is in use, no socket, or too long."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            is_silent = bool(probe.connect_ex(str(path)))
        except OSError as error:
            length = len(os.fsencode(path))
            raise InvalidArgument(
                f"`shard_uds_path`: {length} bytes are too many for a socket's path: {path}") from error
        if not path.exists():
            return
        if is_silent and stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
        else:
            raise InvalidArgument(f"`shard_uds_path`: {path} is in use")
