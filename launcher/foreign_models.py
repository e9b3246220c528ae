"""Models of a server whose requests servers elsewhere answer, as the user lists them."""

import os
from dataclasses import replace

from penstock.launcher.model_list import URL, ListedModel
from penstock.router.foreign_settings import ForeignSettings
from penstock.system.arguments import InvalidArgument


def is_elsewhere(model: ListedModel) -> bool:
    """Tells whether servers elsewhere answer a model's requests."""
    return URL in model.settings


def foreign_model(model: ListedModel, max_concurrent_requests: int) -> ForeignSettings:
    """Returns its settings, with the key for the servers, and by default at most so many requests at once. Raises
    InvalidArgument."""
    try:
        if model.is_pinned or model.keep_alive is not None:
            raise InvalidArgument("`pinned` and `keep_alive` are for models that are loaded, which one with a `url` "
                                  "never is")
        settings = ForeignSettings.parse(model.name, model.settings, max_concurrent_requests)
        if settings.api_key_env is None:
            return settings
        key = os.environ.get(settings.api_key_env, "")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise InvalidArgument(f"`api_key_env`: the variable {settings.api_key_env} must have a key")
        return replace(settings, api_key=key)
    except InvalidArgument as error:
        raise InvalidArgument(f"model {model.name}: {error.message}") from error
