"""The settings that launcher and router share, as frozen dataclasses, parsed and checked once at start."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, TypeAdapter

from penstock.router.adapters.source import AdapterSource
from penstock.system import child_environment, wire_tls
from penstock.system.arguments import InvalidArgument
from penstock.system.wire_tls import WireTls

SECRETS = ("api_key", "metrics_key")
"""The settings that the router gets by environment variables of these names in capitals, one key a line."""
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which Prometheus' client learns that processes count together, when it is imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The settings that the launcher hands on to the router. Counts are of tokens unless the name says otherwise.

    None means that the limit follows from the model and its memory.
    """

    hostname: str
    """An IP address."""
    port: int
    validation_workers: int
    """How many threads tokenise, in each process that answers clients."""
    api_workers: int
    """How many processes answer clients; if it is one, it has the engine, too."""
    max_concurrent_requests: int
    max_best_of: int
    max_stop_sequences: int
    max_top_n_tokens: int
    max_client_batch_size: int
    max_input_tokens: int | None
    max_total_tokens: int | None
    max_batch_prefill_tokens: int | None
    max_batch_total_tokens: int | None
    max_batch_size: int | None
    """How many sequences run at once, each in a slot."""
    pipeline_depth: int | None
    """Steps in flight at once, at least 1: the next is planned and sent before the one that runs is back. None is 2, or
    the group's stages if these are more."""
    max_adapter_memory: int
    """The bytes of all adapters that are loaded at once."""
    allow_runtime_adapters: bool
    """Whether clients may load and unload adapters."""
    speculate: int | None
    """How many tokens of a sequence a step guesses and verifies, at most; None is 0."""
    payload_limit: int
    """The most bytes of a request's body."""
    graceful_termination_timeout: int
    """The seconds that running requests get to finish after SIGTERM."""
    max_shard_downtime: int
    """The seconds that requests wait for a group that is being restarted."""
    poison_memory: int
    """The seconds for which a request that killed its group is refused."""
    json_output: bool
    no_request_logs: bool
    """Whether the log has no line for each request."""
    log_level: str
    """A name that `logging` knows."""
    compute_type: str | None
    """The value of the header `x-compute-type`. If None, it follows from the device of the shards."""
    step_timeout: int
    """The seconds after which a step that has not ended counts as hanging."""
    enable_prefill_logprobs: bool
    """Whether requests may ask for the logprobs of the prompt's tokens."""
    disable_grammar_support: bool
    strict_streaming_errors: bool
    """Whether a stream that fails before its first event is answered with the status of its error."""
    tgi_openai_routes: bool
    """Whether OpenAI's routes answer as TGI's do."""
    tokenizer_config_path: Path | None
    """The file whose chat template is used instead of the checkpoint's."""
    cors_allow_origin: tuple[str, ...]
    """The origins whose pages may call the server; empty stands for any."""
    ssl_certfile: Path | None
    ssl_keyfile: Path | None
    """Given together with `ssl_certfile`, or not at all."""
    grpc_port: int | None
    """The port of the gRPC API; without one there is no gRPC API."""
    vllm_metrics: bool
    """Whether series are told under vLLM's names, too."""
    otlp_endpoint: str | None
    otlp_service_name: str
    vertex_predict_route: str | None
    vertex_health_route: str | None
    """The two routes are the paths that Vertex AI expects."""
    groups: str | None = None
    """Where groups are that run elsewhere, in a form of `GroupsSpec`; without it the shards are the launcher's."""
    shard_tls_ca: Path | None = None
    shard_tls_cert: Path | None = None
    shard_tls_key: Path | None = None
    """The three are given together, or not at all."""
    shard_tls_name: str = wire_tls.NAME
    """The DNS name on the certificates of routers and shards."""
    api_key_file: Path | None
    api_key: tuple[str, ...] = field(default=(), repr=False)
    """The keys of which requests must bear one, beside those of the file. They are no part of the JSON, since other
    users can see command lines."""
    metrics_key: tuple[str, ...] = field(default=(), repr=False)
    """The keys that admit to the server's state alone; without one, it needs no key."""

    @property
    def shard_tls(self) -> WireTls | None:
        """The TLS of the connections to shards, if they have it. Raises InvalidArgument if files are missing."""
        try:
            return WireTls.of((self.shard_tls_ca, self.shard_tls_cert, self.shard_tls_key), self.shard_tls_name)
        except ValueError:
            raise InvalidArgument("`shard_tls_ca`, `shard_tls_cert` and `shard_tls_key` must be given together"
                                  ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig(ServerConfig):
    """All settings of `python -m penstock.router`. The launcher passes them on as JSON, so no flag is defined twice.

    The keys come by their environment variables.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    model_id: str
    """The name to report, as the user gave it."""
    revision: str | None
    """The commit of the Hub's repository, or what the user gave for a directory."""
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
    def environment(self) -> dict[str, str]:
        """The variables of the router's process: what it needs, and the keys, which others can't see there."""
        folder = {} if self.metrics_folder is None else {METRICS_VARIABLE: str(self.metrics_folder)}
        keys = {name.upper(): "\n".join(getattr(self, name)) for name in SECRETS}
        return {**child_environment.for_router(), **folder, **keys}

    def to_json(self) -> str:
        """Returns the settings without the keys as JSON."""
        return TypeAdapter(RouterConfig).dump_json(self, exclude=set(SECRETS)).decode()

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
            return replace(config, **secrets)
        except ValueError as error:
            parser.error(f"--config: {error}")
