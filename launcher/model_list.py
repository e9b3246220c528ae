"""The models of a server of several, as the user lists them: in a YAML file, or by the folders of a repository."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import click

from penstock.launcher.hub import path_of
from penstock.launcher.option_types import NAMED
from penstock.router.foreign_settings import Fallback
from penstock.system.arguments import InvalidArgument
from penstock.system.setting import Duration

OWN_FIELDS = ("name", "pinned", "keep_alive", "fallback", "fallback_after")
URL = "url"
"""The setting by which a model is known whose requests servers elsewhere answer."""
PIPELINE = "pipeline"
"""The setting by which a model is known whose requests steps answer."""
CONFIG = "config.yaml"
"""The file of a model's folder in a repository that has its settings."""
CHECKPOINT = "config.json"
"""The file by which a folder is known to be a checkpoint."""
_PARTS = {"targets", "shadow"}
"""The fields of an alias that has shadows."""


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model as it is listed: what it is called, whether it is always loaded, the seconds for which it otherwise stays
    without a request, its settings, by the names of their options, and the models elsewhere that take its place where
    it fails. Files that settings name are looked for in `folder`."""

    name: str
    settings: Mapping[str, Any]
    is_pinned: bool = False
    keep_alive: float | None = None
    fallback: Fallback | None = None
    folder: Path = field(default=Path(), compare=False)

    @classmethod
    def parse(cls, entry: object, where: str, folder: Path = Path(), **more: Any) -> Self:
        """Reads a model of a YAML file. Raises InvalidArgument, which begins with `where`."""
        if not isinstance(entry, dict) or not all(isinstance(key, str) for key in entry):
            raise InvalidArgument(f"{where}: a model must have names of options with their values. Given: {entry!r}")
        fields = {key.replace("-", "_"): value for key, value in {**entry, **more}.items()}
        name, pinned, keep_alive, fallback, after = (fields.pop(key, None) for key in OWN_FIELDS)
        if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
            raise InvalidArgument(f"{where}: a model must have a `name`. Given: {name!r}")
        if not isinstance(pinned, bool | None):
            raise InvalidArgument(f"{where}: {name}: `pinned` must be true or false. Given: {pinned!r}")
        try:
            return cls(name, fields, bool(pinned), _seconds(keep_alive), Fallback.parse(fallback, after), folder)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}: {name}: {error.message}") from error


@dataclass(frozen=True, slots=True)
class ModelList:
    """Models, of which the first answers requests that name none, aliases, each with the weights of its models, and the
    shadows of aliases, each with its share of the requests."""

    models: tuple[ListedModel, ...]
    aliases: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    shadows: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [model.name for model in self.models]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidArgument(f"there are two models of the name {twice[0]}")
        if not names:
            raise InvalidArgument("there are no models")


def read_file(file: Path) -> ModelList:
    """Reads a file with a list `models`, and with an object `aliases` if there are some. Raises InvalidArgument."""
    content = _read_yaml(file, "models")
    if not isinstance(content, dict) or not {"models"} <= set(content) <= {"models", "aliases"}:
        raise InvalidArgument(f"`models`: {file} must have a list `models`, and may have an object `aliases`")
    entries = content["models"]
    if not isinstance(entries, list):
        raise InvalidArgument(f"`models`: {file}: `models` must be a list. Given: {entries!r}")
    try:
        models = tuple(ListedModel.parse(entry, f"model {number}", file.parent)
                       for number, entry in enumerate(entries, 1))
        return ModelList(models, *_aliases(content.get("aliases") or {}))
    except InvalidArgument as error:
        raise InvalidArgument(f"`models`: {file}: {error.message}") from error


def named_places(given: str | Sequence[str]) -> ModelList | None:
    """Returns the models of NAME=PLACE, several or one; None for the place of one that has no name, as a place that is
    there has none. Raises InvalidArgument."""
    places = [given] if isinstance(given, str) else [*given]
    named = [NAMED.fullmatch(place) for place in places]
    if len(places) == 1 and (named[0] is None or path_of(places[0]).exists()):
        return None
    if unnamed := [place for place, match in zip(places, named, strict=True) if match is None]:
        raise InvalidArgument(f"`model_id`: of several models each must be NAME=PLACE. Given: {unnamed[0]}")
    try:
        return ModelList(tuple(ListedModel.parse({"name": match[1], "model_id": match[2]}, "`model_id`")
                               for match in named if match is not None))
    except InvalidArgument as error:
        raise InvalidArgument(f"`model_id`: {error.message.removeprefix('`model_id`: ')}") from error


def read_repository(folder: Path) -> ModelList:
    """Reads a folder with one for each model. That is a checkpoint, or has a config.yaml that names one, a URL or
    steps, or has checkpoints in folders with numbers: the versions NAME@1, NAME@2, of which NAME stands for the latest.
    Those whose requests others answer come last. Raises InvalidArgument."""
    if not folder.is_dir():
        raise InvalidArgument(f"`model_repository`: there is no directory {folder}")
    models: list[ListedModel] = []
    aliases: dict[str, Mapping[str, float]] = {}
    try:
        for path in sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith(".")):
            versions = [*_versions(path)]
            models.extend(versions)
            if versions and "@" in versions[0].name:
                aliases[path.name] = {versions[0].name: 1.0}
        models.sort(key=lambda model: URL in model.settings or PIPELINE in model.settings)
        return ModelList(tuple(models), aliases)
    except InvalidArgument as error:
        raise InvalidArgument(f"`model_repository`: {folder}: {error.message}") from error


def _versions(path: Path) -> Iterator[ListedModel]:
    """Yields the versions of a model's folder, the latest first, or the only one."""
    settings = _read_yaml(path / CONFIG, "model_repository") if (path / CONFIG).is_file() else {}
    if not isinstance(settings, dict):
        raise InvalidArgument(f"{path / CONFIG} must have names of options with their values")
    if given := [key for key in ("name", "revision") if key in settings]:
        raise InvalidArgument(f"{path / CONFIG}: `{given[0]}` is what the directory says")
    if URL in settings or PIPELINE in settings:
        yield ListedModel.parse(settings, path.name, path, name=path.name)
        return
    numbers = sorted((int(each.name) for each in path.iterdir() if each.is_dir() and each.name.isdecimal()),
                     reverse=True)
    where = path.name
    if numbers and "model_id" in settings:
        raise InvalidArgument(f"{path / CONFIG}: `model_id` is for a directory without numbered versions")
    for number in numbers:
        listed = ListedModel.parse(settings, where, name=f"{path.name}@{number}", model_id=str(path / str(number)))
        yield listed if number == numbers[0] else replace(listed, is_pinned=False)
    if numbers:
        return
    if "model_id" not in settings and not (path / CHECKPOINT).is_file():
        raise InvalidArgument(f"{path} is no checkpoint, has no numbered versions, and no {CONFIG} with a `model_id`,"
                              " a `url` or a `pipeline`")
    yield ListedModel.parse({"model_id": str(path), **settings}, where, name=path.name)


def _seconds(keep_alive: object) -> float | None:
    """Returns for how long a model stays; None if that is not said. Raises InvalidArgument."""
    if keep_alive is None:
        return None
    try:
        return Duration().convert(keep_alive, None, None)
    except click.BadParameter as error:
        raise InvalidArgument(f"`keep_alive`: {error.message}") from error


def _aliases(given: object) -> tuple[dict[str, Mapping[str, float]], dict[str, Mapping[str, float]]]:
    """Returns aliases, each with the weights of its models, and the shadows of those that have some. Raises
    InvalidArgument."""
    if not isinstance(given, dict):
        raise InvalidArgument(f"`aliases` must be an object. Given: {given!r}")
    aliases: dict[str, Mapping[str, float]] = {}
    shadows: dict[str, Mapping[str, float]] = {}
    for alias, told in given.items():
        if not isinstance(alias, str):
            raise InvalidArgument(f"`aliases`: an alias must be a name. Given: {alias!r}")
        if isinstance(told, dict) and isinstance(told.get("targets"), str | dict) and not set(told) - _PARTS:
            aliases[alias] = _weights(alias, told["targets"])
            if "shadow" in told:
                shadows[alias] = _weights(alias, told["shadow"])
        else:
            aliases[alias] = _weights(alias, told)
    return aliases, shadows


def _weights(alias: str, given: object) -> dict[str, float]:
    weights = {given: 1.0} if isinstance(given, str) else given
    if not isinstance(weights, dict) or not weights or not all(
            isinstance(model, str) and isinstance(weight, int | float) and not isinstance(weight, bool)
            for model, weight in weights.items()):
        raise InvalidArgument(f"`aliases`: {alias} must be the name of a model, or have names of models with their "
                              f"weights, or such `targets` and a `shadow`. Given: {given!r}")
    return {model: float(weight) for model, weight in weights.items()}


def _read_yaml(file: Path, option: str) -> Any:
    import yaml  # type: ignore[import-untyped]  # which few servers need

    try:
        return yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"`{option}`: cannot read {file}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise InvalidArgument(f"`{option}`: {file}: {error}") from error
