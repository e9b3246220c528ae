"""The settings of the router's processes, as a frozen dataclass, parsed and checked once at start."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, TypeAdapter

from penstock.router.adapters.source import AdapterSource
from penstock.router.foreign_settings import Fallback, ForeignSettings
from penstock.router.pipeline_settings import PipelineSettings
from penstock.system import child_environment
from penstock.system.settings import ServerSettings

SECRETS = ("api_key", "metrics_key")
"""The settings that the router gets by environment variables of these names in capitals, one key a line."""
URLS = ("database_url", "response_cache")
"""The settings that may have a password in them, which the router gets by variables of these names, too."""
HIDDEN = (*SECRETS, *URLS)
SOURCE_KEYS = "SOURCE_KEYS"
"""The variable by which the router gets the keys for servers elsewhere: JSON of keys by the names of models."""
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which Prometheus' client learns that processes count together, when it is imported."""


@dataclass(frozen=True, kw_only=True)
class RouterVariables:
    """The settings of launcher and router that variables alone give."""

    log_level: str
    """A name that `logging` knows."""
    compute_type: str | None
    """The value of the header `x-compute-type`. If None, it follows from the device of the shards."""
    vertex_predict_route: str | None
    vertex_health_route: str | None
    """The two routes are the paths that Vertex AI expects."""


@dataclass(frozen=True, kw_only=True)
class RouterConfig(ServerSettings, RouterVariables):
    """All settings of `python -m penstock.router`. The launcher passes them on as JSON, so no flag is defined twice.

    The keys come by their environment variables.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    model_dir: Path
    """The directory of the chat templates."""
    made_of: str | None = None
    """The user's name of the GGUF file that the directory was made of, if it was made."""
    tokenizer_json: Path
    """The file of the tokenizer, which is elsewhere if it was made and could not be written there."""
    adapters: tuple[AdapterSource, ...] = ()
    """Those that requests may name from the start."""
    shard_sockets: tuple[str, ...]
    """The gRPC targets of the launcher's own shards, in rank order; none if there are `groups`."""
    folder: Path | None = None
    """The server's private folder, where what its processes share is."""
    role: Literal["alone", "engine", "front"] = "alone"
    """The part of the process: all, or one of several; fronts answer clients, and reach the engine at `engine_socket`.
    """
    engine_socket: Path | None = None
    number: int = 0
    """Which of the fronts it is."""
    metrics_folder: Path | None = None
    """The folder in which several processes count together."""
    keeps_folder: bool = False
    """Whether the folder of the shards' sockets is the user's, who keeps it."""
    listen_fd: int
    """The file descriptor of the socket at the port."""
    notices_fd: int
    """The file descriptor of the pipe on which notices of the launcher come, and whose end tells that it is gone."""
    served_name: str | None = None
    """The name by which requests ask for the model, if it is not its place."""
    num_bytes: int = 0
    """The memory that the model takes, of its weights and of its keys and values, as far as it is known."""
    others: tuple["ServedModel", ...] = ()
    """The models that are served beside this one."""
    aliases: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The names that stand for models, each with the weights of those."""
    shadows: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The shadows of aliases, each with its share of the requests."""
    elsewhere: tuple[ForeignSettings, ...] = ()
    """The models whose requests servers elsewhere answer."""
    fallbacks: Mapping[str, Fallback] = field(default_factory=dict)
    """The models elsewhere that take the place of models here that fail, by the names of these."""
    is_gateway: bool = False
    """Whether servers elsewhere answer for all models, so that there are no shards."""
    pipelines: tuple[PipelineSettings, ...] = ()
    """The models whose requests steps answer."""
    orders_fd: int = -1
    """The file descriptor of the pipe by which models are loaded and unloaded, if there are several."""
    signs_fd: int = -1
    """The file descriptor of the pipe on which the launcher gets signs; it is given beside the JSON."""

    @property
    def member(self) -> str:
        """Names the process among those of its router, as the next in its place will be called."""
        return f"front-{self.number}" if self.role == "front" else "engine"

    @property
    def name(self) -> str:
        """The name of the model for clients."""
        return self.served_name or self.model_id

    @property
    def has_store(self) -> bool:
        """Whether files, batches and responses are kept anywhere."""
        return self.data_dir is not None or self.database_url is not None

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the router's process: what it needs, and its secrets, which others can't see there."""
        folder = {} if self.metrics_folder is None else {METRICS_VARIABLE: str(self.metrics_folder)}
        keys = {name.upper(): "\n".join(getattr(self, name)) for name in SECRETS}
        urls = {name.upper(): url for name in URLS if (url := getattr(self, name))}
        sources = {each.name: each.api_key for each in self.elsewhere if each.api_key is not None}
        told = {SOURCE_KEYS: json.dumps(sources)} if sources else {}
        return {**child_environment.for_router(), **folder, **keys, **urls, **told}

    def to_json(self) -> str:
        """Returns the settings without the keys as JSON."""
        hidden: Any = {**dict.fromkeys(HIDDEN, True), "elsewhere": {"__all__": {"api_key"}}}
        return _adapter().dump_json(self, exclude=hidden, exclude_defaults=bool(self.others)).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reverses `to_json`. Raises ValueError, which names the fields that are wrong."""
        config: Self = _adapter().validate_json(text)
        return config

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> Self:
        """Reads `--config JSON` and the environment; ends the process if the command line is wrong."""
        parser = argparse.ArgumentParser("python -m penstock.router", description="The launcher starts it.")
        parser.add_argument("--config", required=True, metavar="JSON", help="the settings, a RouterConfig")
        parser.add_argument("--signs-fd", type=int, required=True, metavar="FD",
                            help="the pipe on which it gives signs")
        given = parser.parse_args(argv)
        try:
            config = replace(cls.from_json(given.config), signs_fd=given.signs_fd)
            secrets: dict[str, Any] = {name: tuple(os.environ.get(name.upper(), "").splitlines()) for name in SECRETS}
            urls: dict[str, Any] = {name: os.environ.get(name.upper()) for name in URLS}
            keys = json.loads(os.environ.get(SOURCE_KEYS) or "{}")
            elsewhere = tuple(replace(each, api_key=keys.get(each.name)) for each in config.elsewhere)
            return replace(config, **secrets, **urls, elsewhere=elsewhere)
        except ValueError as error:
            parser.error(f"--config: {error}")


@cache
def _adapter() -> TypeAdapter[Any]:
    """Makes the reader and writer of settings, once: that takes longer than to read or write."""
    return TypeAdapter(RouterConfig)


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model that is served beside the first of its server, by settings of its own."""

    config: RouterConfig
    is_pinned: bool
    """Whether it is always loaded; others are while they are used."""
    keep_alive: float
    """For how many seconds it stays loaded without a request."""
