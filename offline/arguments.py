"""From the arguments of `LLM`, which have vLLM's names, to the settings of a launcher."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from penstock.launcher import without_effect
from penstock.launcher.config import LauncherConfig
from penstock.launcher.group_options import OF_SHARDS
from penstock.launcher.options import CALLBACKS
from penstock.offline.failures import as_error
from penstock.offline.foreign_arguments import FOREIGN
from penstock.offline.made_settings import MADE_BY, MADE_OF
from penstock.offline.names import NAMES, in_given_words
from penstock.system.arguments import InvalidArgument
from penstock.system.setting import Setting, settings
from penstock.system.settings import MEMORY, MODEL, SHARDS, ServerSettings

log = logging.getLogger(__name__)

SAME_NAMES = frozenset({"disable_grammar_support"} | {
    each.name for each, setting, _ in settings(ServerSettings) if setting.group in (MODEL, MEMORY, SHARDS)}) - {
    *NAMES.values(), "num_shard", "pipeline_parallel_size", "sharded", "lora_adapters", "watermark_gamma",
    "watermark_delta"}
"""The settings that an `LLM` has by their own names: those of models, memory and shards, but for some that it has in
another way, and those of watermarks, for which nothing here asks."""
VALUES: Mapping[str, Mapping[object, object]] = {
    "dtype": {"auto": None, "half": "float16", "float": "float32"},
    "kv_cache_dtype": {"auto": None, "fp8": "fp8_e4m3fn", "fp8_e4m3": "fp8_e4m3fn"},
    "quantization": {"gguf": None},
}
"""Values of vLLM, and ours for them."""
NUM_SEQUENCES = 256
"""How many sequences run at once by default, as in vLLM."""
QUIET = "WARNING"
"""The level from which the log tells something by default."""
NO_LIMIT = 1 << 20
"""A limit that nobody reaches: a program's own memory bounds how much it asks for."""
ONE_SHARD = {"num_shard": 1, "pipeline_parallel_size": 1}
"""The values of settings of shards that stand for one shard."""
ALONE: Mapping[str, Any] = {"max_concurrent_requests": NO_LIMIT, "no_request_logs": True}
"""Settings of a model that one program asks alone."""
FIXED: Mapping[str, Any] = {"max_stop_sequences": NO_LIMIT, "allow_priorities": True}
"""Settings that an `LLM` has as they are."""


def launcher_config(arguments: Mapping[str, Any]) -> LauncherConfig:
    """Returns the settings that the arguments ask for, of which absent ones are None. Raises TypeError for one that is
    not taken, and ValueError for a value that is not."""
    given = {name: value for name, value in arguments.items() if value is not None}
    options = {**FIXED, **dict(_options(given))}
    if "groups" in given:
        _refuse_of_shards(options, given)
    else:  # they are started again until that is of no use, which the launcher says
        options.setdefault("max_shard_downtime", NO_LIMIT)
    has_adapters = bool(given.get("enable_lora"))
    try:
        config = config_of(options)
    except InvalidArgument as error:
        raise as_error(error) from error
    config = replace(config, allow_runtime_adapters=has_adapters)
    _tell_without_effect(given, config)
    return config


def _refuse_of_shards(options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises ValueError for a setting that concerns shards, where none are started."""
    for name in reversed(OF_SHARDS):  # stages before ranks, whose number is made of theirs
        if options.get(name) is not None and options[name] != ONE_SHARD.get(name):
            argument = name if name in given else MADE_BY.get(name, name)
            raise ValueError(in_given_words(f"`{argument}` concerns shards, and with `groups` none are "
                                            "started here: give it to `penstock group`, which starts them"))


def config_of(options: Mapping[str, Any]) -> LauncherConfig:
    """Returns the settings of a model that one program asks alone. The log has only faults, unless LOG_LEVEL asks for
    more than usual: a program tells its own story. Raises InvalidArgument."""
    number = options.get("max_batch_size")
    config = LauncherConfig.from_options(
        {**options, **ALONE, "max_batch_size": NUM_SEQUENCES if number is None else number})
    levels: dict[str, Any] = {name: QUIET for name in ("log_level", "launcher_log_level", "shard_log_level")
                              if getattr(config, name) == "INFO"}
    return replace(config, **levels)


def _options(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the settings, by their own names."""
    declared = {each.name: (setting, hint) for each, setting, hint in settings(ServerSettings)}
    for name, value in given.items():
        setting = _setting(name)
        if setting is not None:
            value = VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value
            if value is not None:
                yield setting, _checked(name, value, *declared[setting])
        elif name not in MADE_OF:
            _refuse_or_tell(name, value)
    for name, make in MADE_OF.items():
        if name in given:
            for setting, value in make(given):
                if setting in SAME_NAMES and setting in given:
                    raise ValueError(f"`{setting}` and `{name}` are two words for the same: give one of them")
                yield setting, value


def _setting(name: str) -> str | None:
    """Returns the setting that an argument is, if it is one."""
    return name if name in SAME_NAMES else NAMES.get(name)


def _checked(name: str, value: Any, setting: Setting, hint: Any) -> Any:
    """Returns a value as its setting has it, checked as on a command line."""
    kind = setting.attributes.get("type")
    try:
        if name in ("groups", "cuda_graphs") and not isinstance(value, str):
            value = ",".join(map(str, value))
        if name == "groups":
            return CALLBACKS[name](None, None, value)
        if isinstance(kind, click.ParamType):
            return kind.convert(value, None, None)
        return TypeAdapter(hint).validate_python(value)
    except InvalidArgument as error:
        raise ValueError(in_given_words(error.message)) from error
    except click.UsageError as error:
        raise ValueError(f"`{name}`: {error.message}") from error
    except ValidationError as error:
        raise ValueError(f"`{name}`: {error.errors()[0]['msg']}. Given: {value!r}") from error


def _refuse_or_tell(name: str, value: Any) -> None:
    """Lets an argument pass that asks for nothing. Raises TypeError for one that is not known, and ValueError for a
    value that can't be had; the log tells of one that changes nothing."""
    found = FOREIGN.get(name)
    if found is None:
        raise TypeError(f"there is no argument `{name}`")
    if value in found.neutral:
        return
    if not found.is_told:
        raise ValueError(f"`{name}` = {value!r} is not taken: {found.why}")
    log.warning("`%s` has no effect: %s", name, found.why)


def _tell_without_effect(given: Mapping[str, Any], config: LauncherConfig) -> None:
    """Writes to the log which settings change nothing beside the others."""
    for name in given:
        for row in without_effect.TABLE:
            if row.option == _setting(name) and row.is_so(vars(config)):
                log.warning("`%s` has no effect: %s", name, in_given_words(row.why.format_map(vars(config))))
