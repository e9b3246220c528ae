"""Writes checkpoints of safetensors files. A file under its own name is whole."""

import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from penstock.shard.weights.safetensors_files import INDEX_FILE

COPIED = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "tokenizer*", "LICENSE*")


def save(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes a file, under its name when it is done: the same bytes each time. metadata: kept in the file's header"""
    unfinished = path.with_suffix(".part")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, unfinished,
              metadata={"format": "pt", **metadata})
    _order_metadata(unfinished)
    unfinished.rename(path)


def _order_metadata(path: Path) -> None:
    """Puts the metadata of a file's header in one order, in place: the library writes them in another each time."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        ordered = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(ordered) <= length, f"{path}: the library writes JSON in fewer characters"
        file.seek(8)
        file.write(ordered.ljust(length))


def write_index(folder: Path, files: Collection[Path]) -> None:
    """Writes which of the files has which tensor."""
    found: dict[str, str] = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            found |= dict.fromkeys(file.keys(), path.name)
    total = sum(path.stat().st_size for path in files)
    (folder / INDEX_FILE).write_text(json.dumps(
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(found.items()))}))


def copy_rest(model: Path, folder: Path, but: Collection[str]) -> None:
    """Copies all files that are no weights, except those of these names."""
    for pattern in COPIED:
        for path in model.glob(pattern):
            if path.is_file() and path.name not in but:
                shutil.copy(path, folder / path.name)
