"""Lets transformers read a checkpoint into a class of its own."""

import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from penstock.shard.fallback import architectures
from penstock.shard.models.keys import Keys, ModelConfigError, is_integer
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.rank_weights import Progress
from penstock.shard.weights.safetensors_files import INDEX_FILE, SINGLE_FILE
from penstock.shard.weights.stored import CheckpointError

MOST_LAYERS = 4096
COUNTS = ("layers", "layer", "experts", "heads", "blocks")
"""The last words of keys that say how often something is made: more of it than MOST_LAYERS takes for ever."""
SHOWN_NAMES = 4


def load(directory: Path, dtype: torch.dtype, progress: Progress | None) -> Any:
    """Returns the model of a checkpoint, in evaluation mode, its attention transformers' own.

    Raises ModelConfigError for a configuration that transformers does not take, CheckpointError for weights that are
    missing or of other shapes.
    """
    keys = Keys.read(directory / "config.json")
    model_class = architectures.model_class(keys)
    check_counts(keys)
    with _indexed(directory) as indexed, _quiet(), _telling(progress):
        try:
            model, found = model_class.from_pretrained(
                indexed, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True,
                output_loading_info=True)
        except MemoryError:
            raise
        except Exception as error:       # which may be any: configurations are checked by the code of each model
            raise ModelConfigError(f"{keys.path}: transformers {architectures.version()} does not make a "
                                   f"{model_class.__name__} of it: {_first_line(error)}") from error
    _check_found(directory, found)
    return model.eval()


def check_counts(keys: Keys) -> None:
    """Raises ModelConfigError for counts that no model has, which would be tried."""
    for name in sorted(keys.names):
        value = keys.get(name)
        if name.rpartition("_")[2] in COUNTS and is_integer(value, MOST_LAYERS + 1):
            raise keys.error(name, f"at most {MOST_LAYERS}")
        if isinstance(value, dict):
            check_counts(keys.section(name))


@contextmanager
def _indexed(directory: Path) -> Iterator[Path]:
    """Yields a checkpoint's directory while the block runs: if it has no index of its files, which transformers wants,
    one of links to them that has. Raises CheckpointError for files that are missing, cut short or damaged."""
    entries = Checkpoint(directory).entries
    if any((directory / name).exists() for name in (SINGLE_FILE, INDEX_FILE)):
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="penstock-index-", ignore_cleanup_errors=True) as folder:
        for path in directory.iterdir():
            Path(folder, path.name).symlink_to(path.resolve())
        weight_map = {name: entry.path.name for name, entry in entries.items()}
        Path(folder, INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        yield Path(folder)


def _check_found(directory: Path, found: dict[str, Any]) -> None:
    for what, names in (("missing", found.get("missing_keys")), ("of another shape", found.get("mismatched_keys"))):
        if names:
            listed = sorted(str(name[0] if isinstance(name, tuple) else name) for name in names)
            more = f" and {len(listed) - SHOWN_NAMES} more" if len(listed) > SHOWN_NAMES else ""
            raise CheckpointError(f"{directory}: {len(listed)} tensors are {what} that transformers' class has: "
                                  f"{', '.join(listed[:SHOWN_NAMES])}{more}")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps transformers' warnings, such as of kernels that it lacks, out of the log while the block runs."""
    from transformers.utils import logging as their_logging

    level = their_logging.get_verbosity()
    their_logging.set_verbosity(logging.ERROR)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        their_logging.set_verbosity(level)
        logging.captureWarnings(False)


class _Told:
    """Stands for the bar that transformers shows of the tensors that it reads."""

    def __init__(self, progress: Progress | None, iterable: Any = None, total: int | None = None) -> None:
        self._progress = progress
        self._iterable = iterable
        self.total = total or (len(iterable) if hasattr(iterable, "__len__") else 0)
        self.done = 0

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            self.update()

    def update(self, number: int = 1) -> None:
        self.done += number
        if self._progress is not None:
            self._progress("weights", self.done, max(self.done, self.total))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def __enter__(self) -> "_Told":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def _telling(progress: Progress | None) -> Iterator[None]:
    """Tells of the tensors that transformers reads while the block runs."""
    from transformers.utils import logging as their_logging

    def told(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> _Told:
        return _Told(progress, args[0] if args else options.get("iterable"), options.get("total"))

    before = their_logging.set_tqdm_hook(told)
    try:
        yield
    finally:
        their_logging.set_tqdm_hook(before)
