"""From what the user calls a model to a directory with its checkpoint."""

from dataclasses import dataclass
from pathlib import Path

from penstock.router.config import InvalidArgument

FILES = ["*.safetensors", "*.json", "*.jinja", "tokenizer*"]
NOT_FILES = ["*/*.safetensors", "*/*.json", "tokenizer*/*", "consolidated*"]
"""Sub-directories hold other formats, beside `additional_chat_templates`; `consolidated` files hold the same weights
once more.
"""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A directory in the Hub's format, and the commit it was made from, or what the user says of that."""

    path: Path
    revision: str | None


def find(model_id: str, revision: str | None = None, cache: Path | None = None) -> Checkpoint:
    """The checkpoint in the directory `model_id`, or of that name on the Hub, downloaded if it isn't in the cache.

    InvalidArgument says what to do when there is none, or names the file that is missing.
    """
    directory = Path(model_id).expanduser()
    if directory.is_dir():
        checkpoint = Checkpoint(directory.resolve(), revision)
    elif model_id.startswith(("/", ".", "~")):
        raise InvalidArgument(f"`model_id`: there is no directory {model_id}")
    else:
        path = _download(model_id, revision, cache)
        checkpoint = Checkpoint(path, path.name)
    _check(checkpoint.path)
    return checkpoint


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
    """What can be seen to be missing before any weight is read."""
    for name in ("config.json", "tokenizer.json"):
        if not (directory / name).is_file():
            raise InvalidArgument(f"`model_id`: {directory} has no file {name}")
    if not any(directory.glob("*.safetensors")):
        raise InvalidArgument(f"`model_id`: {directory} has no file *.safetensors; other formats are not read")
