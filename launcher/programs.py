"""The commands of the processes that serve a model."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from penstock.checkpoints.tokenizers.sources import TOKENIZER
from penstock.launcher import hub
from penstock.launcher.config import LauncherConfig
from penstock.launcher.group_place import GroupPlace
from penstock.launcher.hub import Checkpoint
from penstock.launcher.nodes import Start
from penstock.launcher.processes import Program
from penstock.launcher.shard_memory import ShardMemory
from penstock.launcher.socket_folder import SocketFolder
from penstock.router import logs
from penstock.router.adapters.source import AdapterSource
from penstock.router.config import RouterConfig
from penstock.system import addresses, child_environment
from penstock.system.arguments import InvalidArgument
from penstock.system.setting import Who
from penstock.system.settings import told_to

MAX_ARGUMENT = 131_000
"""The bytes of one argument of a process; Linux allows 131,071."""


def group_programs(
    config: LauncherConfig, checkpoint: Checkpoint, folder: SocketFolder, memories: Sequence[ShardMemory],
    is_draining: Callable[[], bool] = lambda: False, start: Callable[[], Start | None] = lambda: None,
    gives_way: bool = False,
) -> Callable[[], Sequence[Program]]:
    """Returns the function that makes the programs of a group, anew for each start: with a rendezvous of their own, in
    a folder where nothing is left of the shards before them. A group that drains goes on draining; one on several
    machines starts as they have agreed on."""
    def programs() -> list[Program]:
        folder.prepare()
        hub.ensure(checkpoint)
        begun = start()
        has_port = config.master_port is not None and begun is None
        rendezvous = f"tcp://{addresses.joined(config.master_addr, config.master_port or 0)}" if has_port else (
            f"file://{folder.meeting()}")
        held = iter(memories)
        return [shard_program(config, checkpoint, rank, folder, rendezvous, next(held, None), is_draining(), begun,
                              gives_way)
                for rank in config.ranks]

    return programs


def shard_program(
    config: LauncherConfig, checkpoint: Checkpoint, rank: int, folder: SocketFolder, rendezvous: str,
    memory: ShardMemory | None = None, is_draining: bool = False, start: Start | None = None, gives_way: bool = False,
) -> Program:
    place = config.place
    settings = told_to(Who.SHARD, config) | {
        "model": str(checkpoint.path), "draft_model": str(checkpoint.draft) if checkpoint.draft else None,
        "rank": rank, "world_size": config.num_shard,
        "listen": f"unix:{folder.socket(rank)}" if place is None else place.listens_at(rank),
        "folder": None if place is None else str(folder.path),
        "group": place and place.name, "shards_here": place and place.shards_here,
        "is_draining": is_draining or None,
        **_meeting(place, start), "rendezvous": rendezvous,
        "max_step_tokens": config.max_batch_prefill_tokens,
        "max_step_rows": max(config.max_batch_size or config.max_concurrent_requests, 1 + config.speculate),
        "log_level": config.shard_log_level, "served_name": config.served_name,
        "made_of": config.model_id if checkpoint.made_of else None,
        "adapter_memory": config.max_adapter_memory if config.takes_adapters else None,
        "parent_pid": os.getpid(),
        # Those of a machine without a launcher would be in the way of the group's next start.
        "orphan_seconds": config.graceful_termination_timeout if start is None else None,
        "memory_fd": memory.fd if memory else None,
        "gives_way": gives_way or None,
        "may_rest": config.keep_weights is not None or None,
        "keeps_folder": folder.was_there or None,
        "has_bars": logs.has_bars(config.json_output) or None,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    of_model = f" of {config.served_name}" if config.served_name else ""
    program = program_of(f"shard {rank}{of_model}", "shard", ["--config", json.dumps(given, default=str)])
    return replace(program, environment=child_environment.for_shard(),
                   fds=[folder.lock_fd, *([memory.fd] if memory else [])])


def _meeting(place: GroupPlace | None, start: Start | None) -> dict[str, Any]:
    """Returns the settings by which a shard meets those of other machines, if there are some."""
    if place is None or start is None:
        return {}
    return {"exchanges": place.exchanges(start.hosts), "generation": start.generation,
            "allow_clear_exchange": place.allow_clear_exchange}


def router_programs(
    config: LauncherConfig, checkpoint: Checkpoint, folder: SocketFolder, listen_fd: int, notices_fds: Sequence[int],
    adapters: Sequence[AdapterSource] = (), **more: Any,
) -> list[Program]:
    """Makes the router's program, and those of the processes that answer clients beside it, if it does not do so
    itself; each has one of `notices_fds`. `more` are settings that other routers do not have. Raises InvalidArgument if
    there are too many adapters."""
    router = router_config(config, checkpoint, folder, listen_fd, notices_fds[0], adapters, **more)
    if config.api_workers == 1:
        return [_router_program("the router", router)]
    router = replace(router, engine_socket=folder.engine_socket, metrics_folder=folder.metrics)
    fronts = [_router_program(f"API worker {number}", replace(
        router, role="front", number=number, adapters=(), notices_fd=fd))
              for number, fd in enumerate(notices_fds[1:])]
    return [_router_program("the router", replace(router, role="engine")), *fronts]


def num_routers(config: LauncherConfig) -> int:
    """Returns how many programs `router_programs` makes."""
    return 1 if config.api_workers == 1 else 1 + config.api_workers


def router_config(
    config: LauncherConfig, checkpoint: Checkpoint, folder: SocketFolder, listen_fd: int, notices_fd: int,
    adapters: Sequence[AdapterSource] = (), **more: Any,
) -> RouterConfig:
    """Makes the settings of a router, of which `more` are some that others do not have; file descriptors are -1 where
    it is no process of its own."""
    return config.for_router(
        model_dir=checkpoint.path, tokenizer_json=checkpoint.tokenizer or checkpoint.path / TOKENIZER,
        revision=checkpoint.revision, made_of=config.model_id if checkpoint.made_of else None,
        shard_sockets=[] if config.groups else [f"unix:{folder.socket(rank)}" for rank in config.ranks],
        folder=folder.path, keeps_folder=folder.was_there, listen_fd=listen_fd, notices_fd=notices_fd,
        adapters=tuple(adapters), served_name=config.served_name, **more)


def _router_program(name: str, router: RouterConfig) -> Program:
    settings = router.to_json()
    if len(settings.encode()) > MAX_ARGUMENT:
        raise InvalidArgument(f"`lora_adapters`: {len(router.adapters)} adapters are more than a command line can hold "
                              "with their paths; load some later, with --allow-runtime-adapters" if not router.others
                              else f"`models`: {1 + len(router.others)} models are more than a command line can hold")
    program = program_of(name, "router", ["--config", settings])
    others = [other.config.notices_fd for other in router.others]
    fds = [router.listen_fd, router.notices_fd, *others, *([router.orders_fd] if router.orders_fd >= 0 else [])]
    return replace(program, environment=router.environment, fds=fds)


def program_of(name: str, module: str, arguments: Sequence[str]) -> Program:
    """Makes a program of a module. With `-P`, a folder `penstock` in the current directory is not taken for ours."""
    return Program(name, [sys.executable, "-P", "-m", f"penstock.{module}", *arguments], gives_signs=True)
