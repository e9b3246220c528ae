"""Finds the directory of a model's checkpoint, or downloads it from the Hugging Face Hub."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from penstock.router.config import InvalidArgument
from penstock.router.launcher import sigterm
from penstock.router.launcher.download import DownloadError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A directory in the Hub's format, with its commit; that of a local directory is what the user gave as revision."""

    path: Path
    revision: str | None


def find(
    model_id: str, revision: str | None = None, cache: Path | None = None, has_bars: bool = False
) -> Checkpoint:
    """Finds the checkpoint in the directory `model_id`, or of that name on the Hub; downloads it if it isn't cached.

    Raises InvalidArgument, which says what to do if there is none, or names the missing file.
    """
    directory = path_of(model_id)
    if directory.is_dir():
        checkpoint = Checkpoint(directory.resolve(), revision)
    elif model_id.startswith(("/", ".", "~")):
        raise InvalidArgument(f"`model_id`: there is no directory {model_id}")
    else:
        from penstock.router.launcher import snapshot  # a second to import, for nothing if the model is a directory
        try:
            with sigterm.heard_in_waits():
                path = snapshot.fetch(model_id, revision, cache, has_bars)
        except DownloadError as error:
            raise InvalidArgument(f"`model_id`: {model_id} is no directory, and {error}") from error
        checkpoint = Checkpoint(path, path.name)
    _check(checkpoint.path)
    return checkpoint


def path_of(model_id: str) -> Path:
    """Returns where the model is if it is a directory: `~` may stand for the home of a user, if there is one."""
    return Path(os.path.expanduser(model_id))


def _check(directory: Path) -> None:
    """Raises InvalidArgument if a file is missing, before any weight is read."""
    for name in ("config.json", "tokenizer.json"):
        if not (directory / name).is_file():
            raise InvalidArgument(f"`model_id`: {directory} has no file {name}")
    index = directory / "model.safetensors.index.json"
    if index.is_file() and not (directory / "model.safetensors").is_file():
        _check_parts(index)
    elif not any(directory.glob("*.safetensors")):
        raise InvalidArgument(f"`model_id`: {directory} has no file *.safetensors; other formats are not read")


def _check_parts(index: Path) -> None:
    """Raises InvalidArgument if a file that the index names is missing, as after an interrupted download."""
    try:
        parts = {str(part) for part in json.loads(index.read_bytes())["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"`model_id`: {index} is no index of safetensors files: {error!r}") from error
    missing = sorted(part for part in parts if not (index.parent / part).is_file())
    if missing:
        more = f" and {len(missing) - 1} more" * (len(missing) > 1)
        raise InvalidArgument(f"`model_id`: {index.parent} has no file {missing[0]}{more}, which its index names: "
                              "download the model again, by `penstock download`, or copy the file")
