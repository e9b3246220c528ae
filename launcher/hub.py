"""Finds the directory of a model's checkpoint, or downloads it from the Hugging Face Hub."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.checkpoints import adapter_files
from penstock.checkpoints.download import DownloadError
from penstock.checkpoints.gguf.folder import write_checkpoint
from penstock.checkpoints.gguf.metadata import GgufError
from penstock.checkpoints.tokenizers.sources import ACCEPTED, TOKENIZER
from penstock.checkpoints.tokenizers.sources import find as find_source
from penstock.launcher import sigterm
from penstock.system.arguments import InvalidArgument
from penstock.system.leftovers import CHECKPOINT_FOLDER
from penstock.system.names import as_given

GGUF = ".gguf"
ADAPTER = adapter_files.CONFIG
WITHOUT_WEIGHTS = {"files": ["*.json", "*.jinja", "tokenizer*", "tiktoken.model", "*.tiktoken", "merges.txt"]}
"""The files of a model on the Hub that a router alone reads."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A directory in the Hub's format, or a GGUF file, with its commit; that of a local one is what the user gave as
    revision."""

    path: Path
    revision: str | None
    made_of: Path | None = None
    """The GGUF file that the directory was made of."""
    tokenizer: Path | None = None
    """The tokenizer.json that was made for a directory without one."""
    draft: Path | None = None
    """The directory of the model that drafts for this one."""


def find(
    model_id: str, revision: str | None = None, cache: Path | None = None, has_bars: bool = False,
    may_be_adapter: bool = False, needs_weights: bool = True,
) -> Checkpoint:
    """Finds the checkpoint in the directory or the GGUF file `model_id`, or of that name on the Hub; downloads it if it
    isn't cached. A router whose shards are elsewhere needs no weights.

    Raises InvalidArgument, which says what to do if there is none, or names the missing file.
    """
    path = path_of(model_id)
    if path.is_dir():
        checkpoint = Checkpoint(path.resolve(), revision)
    elif path.suffix == GGUF and path.exists():
        return Checkpoint(path.resolve(), revision)
    elif model_id.startswith(("/", ".", "~")):
        kind = "GGUF file" if path.suffix == GGUF else "directory"
        raise InvalidArgument(f"`model_id`: there is no {kind} {model_id}")
    elif path.suffix == GGUF:
        return _download_gguf(model_id, revision, cache, has_bars)
    else:
        checkpoint = _download(model_id, revision, cache, has_bars, **({} if needs_weights else WITHOUT_WEIGHTS))
    if not (may_be_adapter and (checkpoint.path / ADAPTER).is_file()):
        _check(checkpoint.path, needs_weights)
    return checkpoint


@contextmanager
def in_directory(checkpoint: Checkpoint, folder: Path) -> Iterator[Checkpoint]:
    """Makes of a GGUF file a directory inside `folder`, with its tokenizer and configuration, which the weights stay
    out of, and removes it afterwards. Raises InvalidArgument for a file that is not read."""
    if checkpoint.path.suffix != GGUF or not checkpoint.path.is_file():
        yield checkpoint
        return
    made = replace(checkpoint, path=folder / CHECKPOINT_FOLDER, made_of=checkpoint.path)
    try:
        shutil.rmtree(made.path, ignore_errors=True)  # of a server that was killed
        ensure(made)
        yield made
    except InvalidArgument as error:
        raise InvalidArgument(as_given(error.message, made.path, str(checkpoint.path))) from error
    finally:
        shutil.rmtree(made.path, ignore_errors=True)


def ensure(checkpoint: Checkpoint) -> None:
    """Makes the directory of a GGUF file unless it is there: under a running server somebody may remove it. Raises
    InvalidArgument."""
    if checkpoint.made_of is None or checkpoint.path.exists():
        return
    try:
        write_checkpoint(checkpoint.made_of, checkpoint.path)
    except GgufError as error:
        raise InvalidArgument(f"`model_id`: {error}") from error
    except OSError as error:
        raise InvalidArgument(f"`model_id`: the tokenizer and the configuration of {checkpoint.made_of} cannot be "
                              f"written to {error.filename} ({error.strerror}): give a directory that can be as "
                              "`--shard-uds-path` or TMPDIR") from error


def _download(model_id: str, revision: str | None, cache: Path | None, has_bars: bool, **only: list[str]) -> Checkpoint:
    path = download("model_id", model_id, revision, cache, has_bars, **only)
    return Checkpoint(path, path.name)


def download(
    option: str, name: str, revision: str | None, cache: Path | None, has_bars: bool, **only: list[str]
) -> Path:
    """Returns the directory of a repository's files, downloaded if need be, whose name is the commit. Raises
    InvalidArgument for the value of `option`."""
    from penstock.checkpoints import snapshot  # a second to import, for nothing if the model is a directory
    try:
        with sigterm.heard_in_waits():
            return snapshot.fetch(name, revision, cache, has_bars, **only)
    except DownloadError as error:
        raise InvalidArgument(f"`{option}`: {name} is no directory, and {error}") from error


def _download_gguf(model_id: str, revision: str | None, cache: Path | None, has_bars: bool) -> Checkpoint:
    """Downloads ORGANISATION/NAME/FILE.gguf, and the other files if the model is split."""
    name, _, file = model_id.rpartition("/")
    if name.count("/") != 1:
        raise InvalidArgument(f"`model_id`: there is no GGUF file {model_id}; one of the Hugging Face Hub is named as "
                              "ORGANISATION/NAME/FILE.gguf")
    files = [re.sub(r"-\d{5}-of-", "-?????-of-", file)]  # of all its parts
    found = _download(name, revision, cache, has_bars, files=files, not_files=[])
    if not (found.path / file).exists():
        raise InvalidArgument(f"`model_id`: {name} has no file {file}")
    return Checkpoint(found.path / file, found.revision)


def path_of(model_id: str) -> Path:
    """Returns where a model that is here is: `~` may stand for the home of a user, if there is one."""
    return Path(os.path.expanduser(model_id))


def _check(directory: Path, needs_weights: bool) -> None:
    """Raises InvalidArgument if a file is missing, before any weight is read."""
    ggufs = sorted(path.name for path in directory.glob(f"*{GGUF}"))
    if ggufs and not any(directory.glob("*.safetensors")):
        raise InvalidArgument(f"`model_id`: {directory} has GGUF files; name one of them: "
                              f"{', '.join(str(directory / name) for name in ggufs[:3])}")
    if not (directory / "config.json").is_file() and (directory / ADAPTER).is_file():
        raise InvalidArgument(f"`model_id`: {directory} is an adapter (LoRA): give it as --lora-adapters, and as "
                              "--model-id the model that it was trained on")
    if not (directory / "config.json").is_file():
        raise InvalidArgument(f"`model_id`: {directory} has no file config.json")
    if not (directory / TOKENIZER).is_file() and find_source(directory) is None:
        raise InvalidArgument(f"`model_id`: {directory} has no file {TOKENIZER}, nor what one can be made of: "
                              f"{ACCEPTED}")
    if not needs_weights:
        return
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
