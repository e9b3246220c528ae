"""Finds the files of the model that a plan is for."""

from pathlib import Path

import click

from penstock.launcher import hub
from penstock.system.arguments import InvalidArgument

CONFIG_FILES = ["config.json", "quantize_config.json", "quant_config.json"]


def find_config(model: str, revision: str | None) -> Path:
    """Returns the directory of a model's config.json; of one on the Hub nothing else is downloaded. Raises
    ClickException."""
    if hub.path_of(model).is_dir():
        return _directory(model, revision)
    if model.startswith(("/", ".", "~")):
        raise click.ClickException(f"there is no directory {model}")
    try:
        return hub.download("model_id", model, revision, None, False, files=CONFIG_FILES, not_files=[])
    except InvalidArgument as error:
        raise click.ClickException(_said(error)) from None


def find_model(model: str, revision: str | None) -> Path:
    """Returns the directory of a model that can be served; one on the Hub is downloaded. Raises ClickException."""
    if hub.path_of(model).is_dir():
        _directory(model, revision)
    try:
        found = hub.find(model, revision).path
    except InvalidArgument as error:
        raise click.ClickException(_said(error)) from None
    if not found.is_dir():
        raise click.ClickException(f"{model} is a file: a plan is for the directory of a model")
    return found


def _directory(model: str, revision: str | None) -> Path:
    if revision:
        raise click.UsageError(f"--revision {revision}: {model} is on this machine, and read as it is")
    return hub.path_of(model)


def _said(error: InvalidArgument) -> str:
    return error.message.removeprefix("`model_id`: ")
