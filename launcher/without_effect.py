"""Options that change nothing beside others: the start says so of each that is given, for none is ignored in silence.

Options that contradict others are refused instead (`penstock.launcher.config`), and an effect that depends on the
checkpoint or on the device is told by the shards."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from penstock.launcher import hub, log_level
from penstock.launcher.option_types import NOTES, Option

log = logging.getLogger(__name__)

Values = Mapping[str, Any]
"""The values of a command line, by the names of the options that the command has."""


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """An option that changes nothing where `is_so`, and the sentence that tells why; its fields are the values."""

    option: str
    is_so: Callable[[Values], bool]
    why: str


TABLE = (
    WithoutEffect("revision", lambda values: _is_here(values["model_id"]),
                  "{model_id} is on this machine, and read as it is"),
    WithoutEffect("huggingface_hub_cache", lambda values: all(map(_is_here, _names(values))),
                  "nothing is downloaded, for all models are on this machine"),
    WithoutEffect("max_adapter_memory", lambda values: "lora_adapters" in values and not (
                      values["lora_adapters"] or values.get("allow_runtime_adapters")),
                  "there are no adapters without --lora-adapters or --allow-runtime-adapters"),
    WithoutEffect("response_cache_size", lambda values: not values["response_cache"],
                  "no answers are kept without --response-cache"),
    WithoutEffect("response_cache_size", lambda values: "://" in (values["response_cache"] or ""),
                  "Redis keeps as much as its own maxmemory says"),
    WithoutEffect("response_cache_age", lambda values: not values["response_cache"],
                  "no answers are kept without --response-cache"),
    WithoutEffect("response_cache_shared", lambda values: not values["response_cache"],
                  "no answers are kept without --response-cache"),
    WithoutEffect("response_cache_shared", lambda values: not (values["api_key"] or values["api_key_file"]),
                  "without --api-key all clients have them in common"),
    *(WithoutEffect(f"request_log_{name}", lambda values: not values["request_log"],
                    "no records are written without --request-log")
      for name in ("content", "redact", "sample", "rotate")),
    WithoutEffect("request_log_redact", lambda values: bool(values["request_log"]) and (
                      values["request_log_content"] != "texts"),
                  "records have no texts without --request-log-content texts"),
    WithoutEffect("request_log_rotate", lambda values: values["request_log"] in ("sqlite", "postgresql"),
                  "a database is not rotated"),
    WithoutEffect("otlp_service_name", lambda values: not values["otlp_endpoint"],
                  "nothing is traced without --otlp-endpoint"),
    WithoutEffect("cors_allow_origin", lambda values: "*" in values["cors_allow_origin"] and len(
                      values["cors_allow_origin"]) > 1,
                  "* allows any origin, so that the others add nothing"),
    WithoutEffect("sharded", lambda values: values["sharded"] is False and (values["num_shard"] or 1) > 1,
                  "false changes nothing beside --num-shard {num_shard}"),
    WithoutEffect("master_addr", lambda values: values["master_port"] is None,
                  "without --master-port the shards meet at a file in a private directory"),
    WithoutEffect("master_port", lambda values: (values["num_shard"] or 1) == 1,
                  "a single shard meets no others"),
    WithoutEffect("deterministic", lambda values: values["device"] == "cpu",
                  "no answer of a processor changes with the batch"),
    WithoutEffect("cuda_graphs", lambda values: values["device"] == "cpu" and any(values["cuda_graphs"]),
                  "nothing is captured on a processor"),
    WithoutEffect("cuda_memory_fraction", lambda values: values["device"] == "cpu",
                  "on a processor --kv-memory says how much memory keys and values get"),
    WithoutEffect("max_batch_size", lambda values: values["max_batch_prefill_tokens"] is not None and (
                      values["max_batch_size"] >= values["max_batch_prefill_tokens"]),
                  "a step of --max-batch-prefill-tokens {max_batch_prefill_tokens} has room for fewer sequences"),
    *(WithoutEffect(option, lambda values: not (values["models"] or values["model_repository"]),
                    "without --models or --model-repository there is one model, which is always loaded")
      for option in ("max_model_memory", "max_load_wait", "model_keep_alive", "keep_weights")),
    # Of `penstock group` alone:
    WithoutEffect("max_concurrent_requests", lambda values: "nnodes" in values and bool(values["max_batch_size"]),
                  "a group runs up to --max-batch-size {max_batch_size} sequences at once, and takes no requests"),
    WithoutEffect("allow_clear_exchange", lambda values: values["device"] == "cpu",
                  "processors exchange by mutual TLS"),
)

VARIABLES = {
    "HF_API_TOKEN": "give HF_TOKEN", "ATTENTION": "the kernels follow from the device",
    "USE_FLASH_ATTENTION": "the kernels follow from the device", "PREFIX_CACHING": "prefixes are always shared",
    "PREFILL_CHUNKING": "prefill is always chunked", "TGI_WIGGLE_ROOM": "--kv-memory says what keys and values get",
    "MAX_IMAGE_FETCH_SIZE": "images are not taken", "LOG_COLORIZE": "the log has no colours",
    "TGI_TOOL_FINISH_REASON": "give TGI_OPENAI_ROUTES"}
"""Variables that change nothing here, and why or what to give instead: TGI's, those that are no flags, and one of an
earlier version's flags."""


def tell(context: click.Context, unread_levels: Sequence[str] = (), variables: Sequence[str] = ()) -> None:
    """Writes a line to the log for each option of the command line that changes nothing, for parts of LOG_LEVEL that
    say nothing, and for those of VARIABLES that are set."""
    for variable in variables:
        log.warning("the environment variable %s has no effect: %s", variable, VARIABLES[variable])
    for directive in unread_levels:
        log.warning("LOG_LEVEL: %s has no effect: levels are %s; a target may be %s, %s or %s", directive,
                    ", ".join(log_level.LEVELS), log_level.LAUNCHER, log_level.ROUTER, log_level.SHARD)
    for sentence in [*context.meta.get(NOTES, []), *_found(context)]:
        log.warning("%s", sentence)


def _found(context: click.Context) -> Iterator[str]:
    given = {option.name: option for option in context.command.params
             if isinstance(option, Option) and option.is_given(context)}
    for row in TABLE:
        if row.option in given and row.is_so(context.params):
            why = row.why.format_map(context.params)
            yield f"{given[row.option].shown(context)} has no effect: {why}"


def _names(values: Values) -> Iterator[str]:
    """Yields the names of all models that may have to be downloaded."""
    yield values["model_id"]
    if values.get("draft_model_id"):
        yield values["draft_model_id"]
    for adapter in values.get("lora_adapters") or ():
        yield adapter.origin


def _is_here(name: str) -> bool:
    """Returns whether a model's name is the path of a directory or a file."""
    return bool(name) and hub.path_of(name).exists()
