"""The settings of each model of a server of several: those of the command line, and the model's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from penstock.launcher.config import LauncherConfig
from penstock.launcher.foreign_models import foreign_model, is_elsewhere
from penstock.launcher.model_list import ListedModel, ModelList, named_places, read_file, read_repository
from penstock.launcher.option_types import Option
from penstock.launcher.options import OPTIONS
from penstock.launcher.pipelines import is_pipeline, pipelines_of
from penstock.router.foreign_settings import Fallback, ForeignSettings
from penstock.router.models.aliases import Aliases
from penstock.router.pipeline_settings import PipelineSettings
from penstock.system.arguments import InvalidArgument
from penstock.system.settings import LIMITS, MEMORY, MODEL, SHARDS

OF_SERVER = frozenset({
    "huggingface_hub_cache", "payload_limit", "shard_uds_path", "max_batch_tokens", "max_batch_requests",
    "max_input_length"})
"""The options in the groups of a model's that a server has once, and other names of options."""
OF_GATEWAY = frozenset({"max_concurrent_requests", "payload_limit", "huggingface_hub_cache", "shard_uds_path"})
"""The options in those groups that a server without models of its own has."""
OF_OWN_MODELS = frozenset({
    "max_model_memory", "max_load_wait", "model_keep_alive", "keep_weights", "grpc_port", "validation_workers",
    "vllm_metrics", "triton_metrics", "response_cache", "output_checks", "allow_runtime_adapters", "allow_priorities",
    "trust_request_chat_template"})
"""The options in other groups that it has not."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model with all settings of its processes."""

    config: LauncherConfig
    is_pinned: bool = True
    keep_alive: float = 0.0


@dataclass(frozen=True, slots=True)
class ServedModels:
    """The models of a server: the first, which is always loaded, others, those that servers elsewhere or steps answer
    for, aliases with the weights of models, the shadows of aliases with their shares, and what takes the place of
    models that fail."""

    first: LauncherConfig
    others: tuple[Served, ...] = ()
    aliases: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    shadows: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    elsewhere: tuple[ForeignSettings, ...] = ()
    is_gateway: bool = False
    """Whether all models are elsewhere, and `first` has the server's settings alone."""
    fallbacks: Mapping[str, Fallback] = field(default_factory=dict)
    pipelines: tuple[PipelineSettings, ...] = ()

    @property
    def are_several(self) -> bool:
        """Whether requests choose among models."""
        return bool(self.others or self.aliases or self.elsewhere or self.pipelines)


def served_models(context: click.Context, options: Mapping[str, Any]) -> ServedModels:
    """Makes the settings of all models that the command line names. Raises InvalidArgument."""
    found = _listed(options)
    if found is None:
        return ServedModels(LauncherConfig.from_options(options))
    if (options["api_workers"] or 1) > 1:
        raise InvalidArgument("`api_workers` must be 1 for a server of several models. Given: "
                              f"{options['api_workers']}")
    first_listed = found.models[0]
    if is_pipeline(first_listed):
        raise InvalidArgument(f"model {first_listed.name}: the first model can't have a `pipeline`: it decides for the "
                              "whole server")
    pipelines = pipelines_of(found)
    models = [model for model in found.models if not is_pipeline(model)]
    is_gateway = all(map(is_elsewhere, models))
    if is_gateway:
        first, others = _of_gateway(context, options, first_listed.name), []
    elif is_elsewhere(first_listed):
        raise InvalidArgument(f"model {first_listed.name}: the first model can't have a `url` beside models of this "
                              "server: it decides for the whole server, and must be its own")
    else:
        first, *others = (_served(context, options, model) for model in models if not is_elsewhere(model))
    _check_ports([first.config, *(other.config for other in others)])
    Aliases.checked(found.aliases, frozenset(model.name for model in found.models), found.shadows)
    elsewhere = tuple(foreign_model(model, first.config.max_concurrent_requests) for model in models
                      if is_elsewhere(model))
    return ServedModels(first.config, tuple(others), found.aliases, found.shadows, elsewhere, is_gateway,
                        _fallbacks(models), pipelines)


def _of_gateway(context: click.Context, options: Mapping[str, Any], name: str) -> Served:
    """Returns the settings of a server all of whose models are elsewhere. Raises InvalidArgument for an option of
    models that are computed here."""
    for option in context.command.params:
        if isinstance(option, Option) and option.is_given(context) and option.name not in OF_GATEWAY and (
                option.group in (MODEL, MEMORY, LIMITS, SHARDS) or option.name in OF_OWN_MODELS):
            raise InvalidArgument(f"{option.shown(context)} concerns models of this server, and all of its models have "
                                  "a `url`: servers elsewhere answer for them")
    return Served(LauncherConfig.from_options({**options, "model_id": name, "served_name": name}))


def _check_ports(models: Sequence[LauncherConfig]) -> None:
    """Raises InvalidArgument if the shards of two models were to meet at the same port."""
    names: dict[int, str | None] = {}
    for model in models:
        if model.master_port is None or model.num_shard == 1:
            continue
        if model.master_port in names:
            raise InvalidArgument(f"model {model.served_name}: `master_port` must be another one than that of "
                                  f"{names[model.master_port]}. Given: {model.master_port}")
        names[model.master_port] = model.served_name


def _fallbacks(models: Sequence[ListedModel]) -> dict[str, Fallback]:
    """Returns which models elsewhere take the place of models that fail. Raises InvalidArgument."""
    elsewhere = [model.name for model in models if is_elsewhere(model)]
    found = {model.name: model.fallback for model in models if model.fallback is not None}
    for name, fallback in found.items():
        if name in elsewhere:
            raise InvalidArgument(f"model {name}: `fallback` is for models of this server; one with a `url` may have "
                                  "several, which are asked in their order")
        if unknown := [each for each in fallback.names if each not in elsewhere]:
            raise InvalidArgument(f"model {name}: `fallback` must name models with a `url`; there are "
                                  f"{', '.join(elsewhere) or 'none'}. Given: {unknown[0]}")
    return found


def _listed(options: Mapping[str, Any]) -> ModelList | None:
    given = [name for name in ("model_id", "models", "model_repository") if options[name]]
    if len(given) > 1:
        raise InvalidArgument(f"`{given[0]}` and `{given[1]}` can't be given together: each says what is served")
    if options["models"]:
        return read_file(options["models"])
    if options["model_id"]:
        return named_places(options["model_id"])
    return read_repository(options["model_repository"]) if options["model_repository"] else None


def _served(context: click.Context, options: Mapping[str, Any], model: ListedModel) -> Served:
    known = {option.name: option for option in OPTIONS
             if isinstance(option, Option) and option.group in (MODEL, MEMORY, LIMITS, SHARDS)}
    values: dict[str, Any] = {}
    for name, value in model.settings.items():
        if name not in known or name in OF_SERVER:
            raise InvalidArgument(f"model {model.name}: `{name}` is no setting of a model; those are the options of "
                                  "the groups Model, Memory and batches, Limits of a request, and Shards, but for "
                                  f"{', '.join(sorted(OF_SERVER))}")
        values[name] = _converted(context, known[name], value, model.name)
    try:
        config = LauncherConfig.from_options({**options, **values, "served_name": model.name})
    except InvalidArgument as error:
        raise InvalidArgument(f"model {model.name}: {error.message}") from error
    keep_alive = config.model_keep_alive if model.keep_alive is None else model.keep_alive
    return Served(config, model.is_pinned, keep_alive)


def _converted(context: click.Context, option: Option, value: Any, model: str) -> Any:
    """Returns a value of YAML as the command line would have it."""
    texts = [str(each) for each in value] if isinstance(value, list) else (
        value if isinstance(value, bool) else str(value))
    if isinstance(texts, list) and not option.multiple:
        texts = ",".join(texts)
    elif isinstance(texts, str) and option.multiple:
        texts = [texts]
    try:
        return option.process_value(context, texts)
    except (click.UsageError, InvalidArgument) as error:
        raise InvalidArgument(f"model {model}: `{option.name}`: {error.message}") from error
