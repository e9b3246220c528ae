"""The settings of the router's processes, as a frozen dataclass, parsed and checked once at start."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, TypeAdapter

from penstock.router.adapters.source import AdapterSource
from penstock.system import child_environment
from penstock.system.settings import ServerSettings

SECRETS = ("api_key", "metrics_key")
"""The settings that the router gets by environment variables of these names in capitals, one key a line."""
HIDDEN = (*SECRETS, "database_url")
"""Those settings, and the one that may have a password in it, which the router gets by a variable, too."""
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
    signs_fd: int = -1
    """The file descriptor of the pipe on which the launcher gets signs; it is given beside the JSON."""

    @property
    def member(self) -> str:
        """Names the process among those of its router, as the next in its place will be called."""
        return f"front-{self.number}" if self.role == "front" else "engine"

    @property
    def has_store(self) -> bool:
        """Whether files, batches and responses are kept anywhere."""
        return self.data_dir is not None or self.database_url is not None

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the router's process: what it needs, and its secrets, which others can't see there."""
        folder = {} if self.metrics_folder is None else {METRICS_VARIABLE: str(self.metrics_folder)}
        keys = {name.upper(): "\n".join(getattr(self, name)) for name in SECRETS}
        database = {"DATABASE_URL": self.database_url} if self.database_url else {}
        return {**child_environment.for_router(), **folder, **keys, **database}

    def to_json(self) -> str:
        """Returns the settings without the keys as JSON."""
        return TypeAdapter(RouterConfig).dump_json(self, exclude=set(HIDDEN)).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reverses `to_json`. Raises ValueError, which names the fields that are wrong."""
        return TypeAdapter(cls).validate_json(text)

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
            return replace(config, **secrets, database_url=os.environ.get("DATABASE_URL"))
        except ValueError as error:
            parser.error(f"--config: {error}")
