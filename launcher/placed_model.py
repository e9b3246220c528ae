"""A model whose files are found, and whose shards have a folder for their sockets and memory that outlives them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from penstock.checkpoints.tokenizers.place import tokenizer_of
from penstock.launcher import draft_model, hub
from penstock.launcher.adapters import find_all
from penstock.launcher.config import LauncherConfig
from penstock.launcher.group import GroupKeeper
from penstock.launcher.hub import Checkpoint
from penstock.launcher.programs import group_programs, router_config
from penstock.launcher.resting import Rest, RestingShards
from penstock.launcher.shard_memory import ShardMemory, shard_memories
from penstock.launcher.socket_folder import SocketFolder, socket_folder
from penstock.launcher.supervisor import NoGroup
from penstock.router import logs
from penstock.router.adapters.source import AdapterSource
from penstock.router.config import SECRETS, URLS, RouterConfig
from penstock.system.arguments import InvalidArgument

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlacedModel:
    """A model that can be started."""

    config: LauncherConfig
    checkpoint: Checkpoint
    adapters: Sequence[AdapterSource]
    folder: SocketFolder
    memories: Sequence[ShardMemory]

    @classmethod
    def nowhere(cls, config: LauncherConfig, folder: SocketFolder) -> Self:
        """Returns the place of a server that has no model of its own."""
        return cls(config, Checkpoint(folder.path, None), (), folder, ())

    @property
    def sockets(self) -> list[str]:
        """The gRPC targets of its shards here, in rank order; none if its groups are elsewhere."""
        if self.config.groups:
            return []
        return [f"unix:{self.folder.socket(rank)}" for rank in self.config.ranks]

    @property
    def num_bytes(self) -> int:
        """The bytes of its files of weights, and of the KV memory that its shards are given by a setting."""
        if self.config.groups:
            return 0
        made_of, draft = self.checkpoint.made_of, self.checkpoint.draft
        files = [made_of] if made_of is not None else [*self.checkpoint.path.glob("*.safetensors")]
        files += [] if draft is None else draft.glob("*.safetensors")
        return sum(file.stat().st_size for file in files) + self.config.num_shard * (self.config.kv_memory or 0)

    def group(
        self, on_progress: Callable[[], None], resting: RestingShards | None = None, is_on_demand: bool = False
    ) -> GroupKeeper | NoGroup:
        """Returns the keeper of its shards, which calls `on_progress` while they load. They rest among those that are
        `resting` rather than end. Those of a model that `is_on_demand` are in no other's way."""
        config = self.config
        if config.groups:
            return NoGroup()
        programs = group_programs(config, self.checkpoint, self.folder, self.memories, gives_way=is_on_demand)
        return GroupKeeper(programs, self.sockets, config.step_timeout, config.startup_timeout, self.memories,
                           on_progress=on_progress,
                           rest=None if resting is None else self._rest(resting), is_on_demand=is_on_demand)

    def _rest(self, resting: RestingShards) -> Rest:
        found = self.checkpoint
        paths = [path for path in (found.path, found.made_of, found.draft) if path is not None]
        return Rest(resting, str(self.config.served_name), self.num_bytes, paths)

    def router(self, notices_fd: int) -> RouterConfig:
        """Returns the settings by which a router of several models serves this one. The keys, and where files are kept,
        are the server's."""
        config = router_config(self.config, self.checkpoint, self.folder, -1, notices_fd, self.adapters,
                               num_bytes=self.num_bytes)
        secrets: dict[str, Any] = dict.fromkeys(SECRETS, ()) | dict.fromkeys(URLS)
        return replace(config, **secrets, data_dir=None)


@dataclass(frozen=True, slots=True)
class Found:
    """A model whose files are found, or were downloaded."""

    config: LauncherConfig
    checkpoint: Checkpoint
    draft: Path | None
    adapters: Sequence[AdapterSource]

    @classmethod
    def find(cls, config: LauncherConfig) -> Self:
        """Finds the files of a model, of its draft model and of its adapters. Raises InvalidArgument, which names the
        model where there are several."""
        has_bars = logs.has_bars(config.json_output)
        try:
            checkpoint = hub.find(config.model_id, config.revision, config.huggingface_hub_cache, has_bars,
                                  needs_weights=config.groups is None)
            return cls(config, checkpoint, draft_model.find(config, has_bars),
                       find_all(config.lora_adapters, config.model_id, config.huggingface_hub_cache, has_bars))
        except InvalidArgument as error:
            if config.served_name is None:
                raise
            raise InvalidArgument(f"model {config.served_name}: {error.message}") from error

    @contextmanager
    def placed(self, folder: SocketFolder) -> Iterator[PlacedModel]:
        """Yields the model with its sockets in `folder`. Raises InvalidArgument."""
        config = self.config
        with (hub.in_directory(self.checkpoint, folder.path) as checkpoint,
              shard_memories(0 if config.groups else config.num_shard) as memories):
            checkpoint = replace(checkpoint, tokenizer=tokenizer_of(checkpoint.path), draft=self.draft)
            if self.draft is not None and checkpoint.tokenizer is not None:
                draft_model.check_tokens(self.draft, checkpoint.tokenizer)
            if config.groups is None:
                begin = "Starting" if config.served_name is None else f"Model {config.served_name}:"
                log.info("%s %d shard%s of %s", begin, config.num_shard, "s" * (config.num_shard > 1), config.model_id)
            else:
                log.info("Serving %s by the groups of %s", config.model_id, config.groups)
            yield PlacedModel(config, checkpoint, self.adapters, folder, memories)

    @contextmanager
    def placed_below(self, path: Path) -> Iterator[PlacedModel]:
        """Yields the model with its sockets in a folder of its own, which is gone afterwards. Raises InvalidArgument.
        """
        with socket_folder(path, self.config.num_shard) as folder, self.placed(folder) as placed:
            yield placed
