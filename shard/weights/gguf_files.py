"""The tensors of a GGUF file, where the model directory's index says they are."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.shard.weights.stored import STORED_DTYPES, CheckpointError, Entry, Span
from penstock.system.ggml_types import GGML_TYPES

GGUF_INDEX_FILE = "model.gguf.json"
"""{"tensors": {NAME: {"file", "type", "shape", "offset", and maybe "paired_heads"}}}; the launcher makes it."""


class GgufFiles:
    """The files of GGUF that a model directory's index names; see TensorFiles.

    A tensor of blocks is uint8 [N, bytes of a row].
    """

    def __init__(self, directory: Path) -> None:
        """Raises CheckpointError for an index that makes no sense, and files that are missing or cut short."""
        path = directory / GGUF_INDEX_FILE
        self.entries: dict[str, Entry] = {}
        self._paired_heads: dict[str, int] = {}
        """By a tensor's name, a head's rows, if each two that a rotation turns are neighbours."""
        try:
            for name, value in json.loads(path.read_bytes())["tensors"].items():
                self._paired_heads[name] = value.get("paired_heads", 0)
                self.entries[name] = _parse(value)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is no index of GGUF files: {error!r}") from error
        self.paths = sorted({entry.path for entry in self.entries.values()})
        sizes = {each: _size(each) for each in self.paths}
        for name, entry in self.entries.items():
            if sum(entry.span) > sizes[entry.path]:
                raise CheckpointError(f"{entry.path} is cut short or damaged: {name} ends at byte {sum(entry.span)}")

    def read(self, name: str, part: tuple[slice, ...]) -> Tensor:
        entry, paired_heads = self.entries[name], self._paired_heads[name]
        try:
            # A mapping for each tensor, so that what has been read of the file does not stay in this process's memory.
            mapped = np.memmap(entry.path, np.uint8, "c", *entry.span)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{entry.path}: {name} cannot be read: {error}") from error
        whole = torch.from_numpy(mapped)
        if entry.dtype != "U8":
            whole = whole.view(STORED_DTYPES[entry.dtype])
        tensor = whole.view(entry.shape)[part]
        return _halves_of_heads(tensor, paired_heads) if paired_heads else tensor


def _parse(value: dict[str, Any]) -> Entry:
    shape = tuple(value["shape"])
    row_bytes = GGML_TYPES[value["type"]].row_bytes(shape[-1])
    dtype, stored = (value["type"], shape) if value["type"] in STORED_DTYPES else ("U8", (*shape[:-1], row_bytes))
    span = Span(value["offset"], math.prod(shape[:-1]) * row_bytes)
    return Entry(Path(value["file"]), dtype, stored, span, f"{value['type']}, paired {value.get('paired_heads', 0)}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error


def _halves_of_heads(rows: Tensor, head: int) -> Tensor:
    """Puts the first of each pair of a head's rows [n * head, ...] before all the second ones."""
    return rows.view(-1, head // 2, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
