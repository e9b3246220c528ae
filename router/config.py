"""What the launcher and the router are told at start: parsed once, checked, then passed on as frozen dataclasses."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import click
from pydantic import ConfigDict, TypeAdapter

API_KEY = "API_KEY"
"""The variable by which the launcher, too, may be told."""


USAGE_ERROR = 2
"""Exit code of a process whose settings can't be met: to start it again would lead to the same end."""


class InvalidArgument(click.ClickException):
    """A setting that can't be used; the message names it and the value found."""

    exit_code = USAGE_ERROR

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"Invalid argument: {self.message}", file=file, err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The flags that the launcher hands on to the router. Counts are of tokens unless the name says otherwise.

    None means that the limit follows from the model and its memory.
    """

    hostname: str
    """An IP address."""
    port: int
    validation_workers: int
    """Threads that tokenise."""
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
    """Sequences that run at once: slots."""
    pipeline_depth: int
    """Steps in flight at once, at least 1: the next is planned and sent before the one that runs is back."""
    payload_limit: int
    """Bytes of a request body."""
    graceful_termination_timeout: int
    """Seconds that running requests get to finish after SIGTERM."""
    max_shard_downtime: int
    """Seconds that requests wait for a group that is being restarted."""
    json_output: bool
    log_level: str
    """A name that `logging` knows."""
    compute_type: str | None
    """Value of the header `x-compute-type`. None: it follows from what the shards compute on."""
    step_timeout: int
    """Seconds after which a step that has not ended is a hang."""
    enable_prefill_logprobs: bool
    """Whether requests may ask for the logprobs of the prompt's tokens."""
    disable_grammar_support: bool
    strict_streaming_errors: bool
    """Whether a stream that fails before its first event has the status of its error."""
    tgi_tool_finish_reason: bool
    """Whether an answer with tool calls ends with `stop`."""
    tokenizer_config_path: Path | None
    """Instead of the checkpoint's."""
    cors_allow_origin: tuple[str, ...]
    """None is any."""
    ssl_certfile: Path | None
    ssl_keyfile: Path | None
    """Given together, or not at all."""
    grpc_port: int | None
    """None: there is no gRPC API."""
    otlp_endpoint: str | None
    otlp_service_name: str
    vertex_predict_route: str | None
    vertex_health_route: str | None
    """Paths that Vertex AI expects."""
    api_key: str | None = field(default=None, repr=False)
    """What requests must bear. A secret: not part of the JSON, since command lines can be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig(ServerConfig):
    """All that `python -m router` is told. The launcher passes it on as JSON, so no flag is defined twice.

    The API key comes by its environment variable.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    model_id: str
    """The name to report: what the user gave."""
    revision: str | None
    """The commit of the Hub's repository; None for a directory."""
    model_dir: Path
    """Where tokenizer.json is."""
    shard_sockets: tuple[str, ...]
    """gRPC targets, in rank order."""
    parent_pid: int
    """The router ends itself when this process is no longer its parent."""

    @property
    def environment(self) -> dict[str, str]:
        """Of the router's process: ours, and the secret, since only command lines can be seen by other users."""
        return {**os.environ, API_KEY: self.api_key or ""}

    def to_json(self) -> str:
        """Without the secret."""
        return TypeAdapter(RouterConfig).dump_json(self, exclude={"api_key"}).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The reverse of `to_json`; ValueError names the fields that are wrong."""
        return TypeAdapter(cls).validate_json(text)

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> Self:
        """From `--config JSON` and the environment; a wrong command line ends the process with status 2."""
        parser = argparse.ArgumentParser("python -m router", description="Started by text-generation-launcher.")
        parser.add_argument("--config", required=True, metavar="JSON", help="a RouterConfig")
        try:
            config = cls.from_json(parser.parse_args(argv).config)
            return replace(config, api_key=os.environ.get(API_KEY) or None)
        except ValueError as error:
            parser.error(f"--config: {error}")
