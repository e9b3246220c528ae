"""Finds the directory of a model's checkpoint, or downloads it from the Hugging Face Hub."""

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.router.config import InvalidArgument

FILES = ["*.safetensors", "*.json", "*.jinja", "tokenizer*"]
NOT_FILES = ["*/*.safetensors", "*/*.json", "tokenizer*/*", "consolidated*"]
"""The files that are not downloaded: sub-directories hold other formats, except `additional_chat_templates`, and
`consolidated` files hold the same weights once more."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A directory in the Hub's format, with its commit; that of a local directory is what the user gave as revision."""

    path: Path
    revision: str | None


def find(model_id: str, revision: str | None = None, cache: Path | None = None) -> Checkpoint:
    """Finds the checkpoint in the directory `model_id`, or of that name on the Hub; downloads it if it isn't cached.

    Raises InvalidArgument, which says what to do if there is none, or names the missing file.
    """
    directory = path_of(model_id)
    if directory.is_dir():
        checkpoint = Checkpoint(directory.resolve(), revision)
    elif model_id.startswith(("/", ".", "~")):
        raise InvalidArgument(f"`model_id`: there is no directory {model_id}")
    else:
        path = _download(model_id, revision, cache)
        checkpoint = Checkpoint(path, path.name)
    _check(checkpoint.path)
    return checkpoint


def path_of(model_id: str) -> Path:
    """Returns where the model is if it is a directory: `~` may stand for the home of a user, if there is one."""
    return Path(os.path.expanduser(model_id))


def _download(name: str, revision: str | None, cache: Path | None) -> Path:
    from huggingface_hub import snapshot_download  # a second to import, for nothing if the model is a directory
    try:
        return Path(snapshot_download(name, revision=revision, cache_dir=cache, allow_patterns=FILES,
                                      ignore_patterns=NOT_FILES))
    except (OSError, ValueError) as error:
        wanted = f"{name} at revision {revision}" if revision else name
        raise InvalidArgument(
            f"`model_id`: {wanted} is no directory and could not be had from the Hugging Face Hub. Give a directory, "
            f"or fill the cache where there is a network: `hf download {name}`. The cause: {error}") from error


def _check(directory: Path) -> None:
    """Raises InvalidArgument if a file is missing, before any weight is read."""
    for name in ("config.json", "tokenizer.json"):
        if not (directory / name).is_file():
            raise InvalidArgument(f"`model_id`: {directory} has no file {name}")
    if not any(directory.glob("*.safetensors")):
        raise InvalidArgument(f"`model_id`: {directory} has no file *.safetensors; other formats are not read")
