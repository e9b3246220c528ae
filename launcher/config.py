"""The launcher's settings, parsed and checked once at start."""

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from penstock.launcher import log_level, without_effect
from penstock.launcher.group_place import OPTIONS_OF_PLACE, GroupPlace
from penstock.router.accounts.price_file import PriceFile
from penstock.router.config import SECRETS, RouterConfig, RouterVariables
from penstock.router.fleet.groups_spec import GroupsSpec
from penstock.router.keys import Keys, check_key
from penstock.system import addresses, wire_tls
from penstock.system.arguments import InvalidArgument
from penstock.system.setting import Who
from penstock.system.settings import ServerSettings, told_to


@dataclass(frozen=True, kw_only=True)
class LauncherConfig(ServerSettings, RouterVariables):
    """All settings of the launcher."""

    launcher_log_level: str
    shard_log_level: str
    unread_log_levels: tuple[str, ...]
    """The parts of LOG_LEVEL that say nothing here."""
    unread_variables: tuple[str, ...]
    """The variables of TGI that are set and change nothing here."""
    served_name: str | None = None
    """The name of the model, of several."""
    place: GroupPlace | None = None
    """Where a group without a router listens; a server's own shards have sockets."""

    @property
    def ranks(self) -> range:
        """Which of the shards are on this machine."""
        return range(self.num_shard) if self.place is None else self.place.ranks

    @property
    def takes_adapters(self) -> bool:
        """Whether adapters may be served."""
        return bool(self.lora_adapters) or self.allow_runtime_adapters or bool(self.place and self.place.has_adapters)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Makes the settings from the parsed command line. Raises InvalidArgument if values contradict one another."""
        defaults: dict[str, Any] = {each.name: each.default for each in fields(ServerSettings)}
        values = defaults | {name: value for name, value in options.items()
                             if name not in OPTIONS_OF_PLACE and value is not None}
        if not values["model_id"]:
            raise InvalidArgument("`model_id` is missing: name a directory, or a model on the Hugging Face Hub")
        if values["rope_factor"] is not None and values["rope_scaling"] is None:
            values["rope_scaling"] = "linear"
        _check_num_shard(values["sharded"], values["num_shard"])
        if "listen" in options:
            values["place"] = GroupPlace.from_options(options, values["num_shard"])
        values["max_input_tokens"] = _max_input_tokens(values["max_input_tokens"], values["max_input_length"])
        _use_other_names(values)
        directives = os.environ.get("LOG_LEVEL", "")
        config = cls(log_level=log_level.level(directives, log_level.ROUTER),
                     launcher_log_level=log_level.level(directives, log_level.LAUNCHER),
                     unread_variables=tuple(name for name in without_effect.VARIABLES if name in os.environ),
                     unread_log_levels=tuple(log_level.unread(directives)),
                     shard_log_level=log_level.level(directives, log_level.SHARD),
                     compute_type=os.environ.get("COMPUTE_TYPE"),
                     vertex_predict_route=_route("AIP_PREDICT_ROUTE"),
                     vertex_health_route=_route("AIP_HEALTH_ROUTE"), **values)
        _check_encoding(config)
        _check(config)
        _check_access(config)
        _check_wire(config)
        return config

    def for_router(self, *, shard_sockets: Sequence[str], **of_router: Any) -> RouterConfig:
        """Returns the settings of the router, of which `of_router` are those that it alone has."""
        told = {each.name: getattr(self, each.name) for each in fields(RouterVariables)} | told_to(Who.ROUTER, self)
        return RouterConfig(shard_sockets=tuple(shard_sockets), **told, **of_router)


def _check_encoding(config: LauncherConfig) -> None:
    """Refuses texts and paths that are not UTF-8, for the other processes get their settings as JSON."""
    for each in fields(config):
        value = getattr(config, each.name)
        for item in value if isinstance(value, tuple) else [value]:
            try:
                str(item).encode()
            except UnicodeEncodeError as error:
                raise InvalidArgument(f"`{each.name}` must be UTF-8") from error


def _check_num_shard(sharded: bool | None, num_shard: int) -> None:
    if sharded and num_shard <= 1:
        raise InvalidArgument("`sharded` is true but `num_shard` <= 1")
    if num_shard < 1:
        raise InvalidArgument("`num_shard` cannot be < 1")


def _max_input_tokens(tokens: int | None, length: int | None) -> int | None:
    if tokens is not None and length is not None:
        raise InvalidArgument(
            f"Both `max_input_tokens` ({tokens}) and `max_input_length` ({length}) are set. Please define only "
            "`max_input_tokens` as `max_input_length is deprecated for naming consistency.")
    return length if tokens is None else tokens


def _use_other_names(values: dict[str, Any]) -> None:
    """Takes the values that were given by TEI's names."""
    for ours, teis in (("max_batch_prefill_tokens", "max_batch_tokens"), ("max_batch_size", "max_batch_requests")):
        if values[ours] is not None and values[teis] is not None:
            raise InvalidArgument(f"`{ours}` and `{teis}` can't be given together: they are one thing")
        values[ours] = values[teis] if values[ours] is None else values[ours]


def _route(variable: str) -> str | None:
    """Returns the route that an environment variable gives, if it gives one."""
    path = os.environ.get(variable) or None
    if path is not None and not re.fullmatch(r"/[^\s{}?#]*", path):
        raise InvalidArgument(f"{variable} must be a path such as /predict. Given: {path!r}")
    return path


def _check_access(config: LauncherConfig) -> None:
    """Checks the keys, the certificate, the ports and the place of the store."""
    for name in SECRETS:
        for key in getattr(config, name):
            check_key(name, key)
    keys = Keys(config.api_key, config.api_key_file)
    if (config.ssl_certfile is None) != (config.ssl_keyfile is None):
        raise InvalidArgument("`ssl_certfile` and `ssl_keyfile` must be given together")
    if config.grpc_port is not None and config.grpc_port == config.port:
        raise InvalidArgument(f"`grpc_port` and `port` must be different. Given: {config.port}")
    if config.data_dir is not None and config.database_url is not None:
        raise InvalidArgument("`data_dir` and `database_url` can't be given together: each says where files and "
                              "batches are kept")
    _check_cache(config)
    _check_request_log(config)
    if config.prices is not None:
        if config.data_dir is None and config.database_url is None:
            raise InvalidArgument("`prices` needs a `data_dir` or a `database_url`, where totals are kept")
        PriceFile(config.prices).read()
    if config.allow_runtime_adapters and not keys:
        raise InvalidArgument("`allow_runtime_adapters` needs an `api_key`, or anybody could load adapters")
    if config.grpc_port is not None and not keys.are_ascii:
        raise InvalidArgument("`api_key` must be ASCII where there is a `grpc_port`: gRPC can send no other")


def _check_cache(config: LauncherConfig) -> None:
    """Checks where answers are to be kept."""
    place = config.response_cache
    if place is None:
        return
    if place not in ("memory", "sqlite", "postgresql") and not place.startswith(("redis://", "rediss://", "unix://")):
        raise InvalidArgument("`response_cache` must be memory, sqlite, postgresql, or a URL such as "
                              f"redis://host:6379/0. Given: {place.partition('://')[0]}")
    if place == "sqlite" and config.data_dir is None:
        raise InvalidArgument("`response_cache` sqlite needs a `data_dir`")
    if place == "postgresql" and config.database_url is None:
        raise InvalidArgument("`response_cache` postgresql needs a `database_url`")
    if "://" in place and importlib.util.find_spec("redis") is None:
        raise InvalidArgument("`response_cache`: Redis's client is not installed: pip install 'penstock[redis]'")


def _check_request_log(config: LauncherConfig) -> None:
    """Checks where records of requests are to be written, and what they must not have."""
    place = config.request_log
    if place == "sqlite" and config.data_dir is None:
        raise InvalidArgument("`request_log` sqlite needs a `data_dir`")
    if place == "postgresql" and config.database_url is None:
        raise InvalidArgument("`request_log` postgresql needs a `database_url`")
    if place not in (None, "sqlite", "postgresql") and not place.endswith(".jsonl"):
        raise InvalidArgument("`request_log` must be a file that ends with .jsonl, sqlite or postgresql. "
                              f"Given: {place}")
    for pattern in config.request_log_redact:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidArgument(f"`request_log_redact` must be a regular expression: {error}. Given: {pattern}"
                                  ) from error


def _check_wire(config: LauncherConfig) -> None:
    """Checks how shards are reached: over a network by mutual TLS alone."""
    try:
        tls, place = config.shard_tls, config.place
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if (config.num_shard > 1 and config.master_port is not None and (place is None or place.nnodes == 1)
            and not addresses.is_loopback(config.master_addr)):
        raise InvalidArgument("`master_addr`: the shards of one machine do not meet in the clear at "
                              f"{config.master_addr}, where others can reach them: leave out `master_port`")
    if tls is not None:
        if place is None and config.groups is None:
            raise InvalidArgument("`shard_tls_ca`, `shard_tls_cert` and `shard_tls_key` need `groups`: a server's own "
                                  "shards are reached by sockets that nobody else may open")
        try:
            tls.check()
        except ValueError as error:
            raise InvalidArgument(f"`shard_tls_ca`, `shard_tls_cert` and `shard_tls_key`: {error}") from error
        return
    if config.shard_tls_name != wire_tls.NAME:
        raise InvalidArgument(wire_tls.NAME_ALONE)
    if place is not None and not addresses.is_loopback(place.host):
        raise InvalidArgument(f"`listen`: shards do not listen at {place.host} in the clear, where others can reach "
                              f"them: {wire_tls.ADVICE}, or listen at 127.0.0.1")
    if place is not None and place.master is not None and not addresses.is_loopback(place.master[0]):
        raise InvalidArgument(f"`master_addr`: machines do not meet at {place.master[0]} in the clear: "
                              f"{wire_tls.ADVICE}")
    for address in GroupsSpec.parse(config.groups).listed if config.groups else ():
        if not addresses.is_loopback(addresses.split(address)[0]):
            raise InvalidArgument(f"`groups`: {address} is not reached in the clear: {wire_tls.ADVICE}")


def _check(config: LauncherConfig) -> None:
    """Checks TGI's rules between values, in its words."""
    if config.validation_workers < 1:
        raise InvalidArgument("`validation_workers` must be > 0")
    if config.default_prompt is not None and config.default_prompt_name is not None:
        raise InvalidArgument("`default_prompt` and `default_prompt_name` can't be given together")
    if config.task == "generate" and config.pooling is not None:
        raise InvalidArgument("`pooling` is not for the task generate, which makes no vectors")
    if config.draft_model_id is not None and not config.speculate:
        raise InvalidArgument("`draft_model_id` needs a `speculate` above 0, the most tokens that it may propose")
    if config.num_shard % config.pipeline_parallel_size:
        raise InvalidArgument("`pipeline_parallel_size` must divide `num_shard`. Given: "
                              f"{config.pipeline_parallel_size} and {config.num_shard}")
    if config.draft_model_id is not None and config.pipeline_parallel_size > 1:
        raise InvalidArgument("`draft_model_id` needs shards that have all layers: a `pipeline_parallel_size` of 1. "
                              f"Given: {config.pipeline_parallel_size}")
    if config.max_batch_size == 0:
        raise InvalidArgument("`max_batch_size` must be > 0")
    input_tokens, total_tokens, most = config.max_input_tokens, config.max_total_tokens, config.max_batch_total_tokens
    if input_tokens is not None and total_tokens is not None and input_tokens >= total_tokens:
        raise InvalidArgument(f"`max_input_tokens`({input_tokens}) must be < `max_total_tokens`({total_tokens})")
    if input_tokens is not None and most is not None and input_tokens >= most:
        raise InvalidArgument("`max_input_tokens` must be < `max_batch_total_tokens`. Given: "
                              f"{input_tokens} and {most}")
    for name, value in (("max_batch_prefill_tokens", config.max_batch_prefill_tokens),
                        ("max_total_tokens", total_tokens)):
        if value == 1:
            raise InvalidArgument(f"`{name}` must be >= 2. Given: 1")
        if value is not None and most is not None and value > most:
            raise InvalidArgument(f"`{name}` must be <= `max_batch_total_tokens`. Given: {value} and {most}")
