"""The pipelines of a server of several models, as the user lists them."""

from penstock.launcher.model_list import PIPELINE, URL, ListedModel, ModelList
from penstock.router.pipeline_settings import PipelineSettings, circle_of
from penstock.system.arguments import InvalidArgument


def is_pipeline(model: ListedModel) -> bool:
    """Tells whether steps answer a model's requests."""
    return PIPELINE in model.settings


def pipelines_of(listed: ModelList) -> tuple[PipelineSettings, ...]:
    """Returns the settings of all pipelines of a list. Raises InvalidArgument, also where a step asks a model that
    there is not, or pipelines ask one another in a circle."""
    pipelines = tuple(_pipeline(model) for model in listed.models if is_pipeline(model))
    for pipeline in pipelines:
        _check_models(pipeline, listed)
        for alias, shadows in listed.shadows.items():
            if pipeline.name in shadows:
                raise InvalidArgument(f"`aliases`: {alias}: {pipeline.name} is a pipeline, which can't be a shadow")
    if circle := circle_of(pipelines, listed.aliases):
        raise InvalidArgument(f"pipelines must not ask one another in a circle: {circle}")
    return pipelines


def _pipeline(model: ListedModel) -> PipelineSettings:
    try:
        if model.is_pinned or model.keep_alive is not None or model.fallback is not None:
            raise InvalidArgument("`pinned`, `keep_alive` and `fallback` are for models that are loaded, which a "
                                  "pipeline never is")
        return PipelineSettings.parse(model.name, model.settings, model.folder)
    except InvalidArgument as error:
        raise InvalidArgument(f"model {model.name}: {error.message}") from error


def _check_models(pipeline: PipelineSettings, listed: ModelList) -> None:
    """Checks that there are all models of the steps, and that those which must be loaded here are."""
    models = {model.name: model for model in listed.models}
    for place, step in enumerate(pipeline.steps):
        for name in step.models:
            where = f"model {pipeline.name}: step `{step.name}`: `{step.kind}`"
            if name not in models and name not in listed.aliases:
                raise InvalidArgument(f"{where}: there is no model {name}; there are "
                                      f"{', '.join(sorted({*models, *listed.aliases}))}")
            if name in models and is_pipeline(models[name]) and not step.generates:
                raise InvalidArgument(f"{where}: {name} is a pipeline, which generates")
            is_last = place == len(pipeline.steps) - 1
            if name in models and URL in models[name].settings and not is_last:
                raise InvalidArgument(f"{where}: {name} is answered by a server elsewhere, so that it must be the last "
                                      "step")
