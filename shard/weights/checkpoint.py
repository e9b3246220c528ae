"""The safetensors files of a checkpoint, and the one slice of them that a rank reads."""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group

log = logging.getLogger(__name__)

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
STORED_DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
SAMPLE_BYTES = 4096
NUM_SAMPLES = 8

Progress = Callable[[str, int, int], None]  # tensor read, tensors read so far, tensors in the checkpoint


class CheckpointError(ValueError):
    """The weights are missing, damaged or not those of the model: names file, tensor, what was expected and found."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file, as its header says."""

    path: Path
    dtype: str
    shape: tuple[int, ...]


class Checkpoint:
    """The files of one model directory: model.safetensors, or those that model.safetensors.index.json lists.

    Opening reads the headers, a few kilobytes, and finds files that are missing or cut short. Raises CheckpointError.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._files, listed = self._find()
        headers = {path: _read_header(path) for path in self._files}
        self.entries = {name: entry for header in headers.values() for name, entry in header.items()}
        for name, path in listed.items():
            if name not in headers[path]:
                raise CheckpointError(f"{path}: {INDEX_FILE} says it holds {name}, which is not in it")

    def read(self, name: str, shape: tuple[int, ...], part: tuple[slice, ...]) -> Tensor:
        """`part` of a tensor, as it is stored; `shape` is what the whole must have.

        It may be a view of the mapped file, which is read when the view is, and whose pages are held as long as it is.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise CheckpointError(f"{self._directory} has no tensor {name}, expected of shape {list(shape)}")
        if entry.shape != shape:
            raise CheckpointError(f"{entry.path}: {name} has shape {list(entry.shape)}, expected {list(shape)}")
        if entry.dtype not in STORED_DTYPES:
            raise CheckpointError(f"{entry.path}: {name} is {entry.dtype}, expected one of {', '.join(STORED_DTYPES)}")
        try:
            # A mapping for each tensor, so that what has been read of the file does not stay in this process's memory.
            with safe_open(entry.path, framework="pt") as file:
                tensor: Tensor = file.get_slice(name)[part]
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{entry.path}: {name} cannot be read: {error}") from error
        return tensor

    def num_bytes(self, dtype: torch.dtype) -> int:
        """Of all tensors, in one dtype."""
        return sum(math.prod(entry.shape) for entry in self.entries.values()) * dtype.itemsize

    def digest(self) -> str:
        """SHA-256 of all names, shapes and dtypes and of a few sampled kilobytes of each file: equal on every rank."""
        digest = hashlib.sha256()
        for name, entry in sorted(self.entries.items()):
            digest.update(f"{name} {entry.dtype} {list(entry.shape)}\n".encode())
        for path in self._files:
            size = path.stat().st_size
            with path.open("rb") as file:
                for sample in range(NUM_SAMPLES):
                    file.seek(max(0, size - SAMPLE_BYTES) * sample // (NUM_SAMPLES - 1))
                    digest.update(file.read(SAMPLE_BYTES))
        return digest.hexdigest()

    def _find(self) -> tuple[list[Path], dict[str, Path]]:
        """The files in the order of their names, and where the index, if there is one, says each tensor is."""
        if (self._directory / SINGLE_FILE).exists():
            return [self._directory / SINGLE_FILE], {}
        index = self._directory / INDEX_FILE
        if not index.exists():
            raise CheckpointError(self._why_no_weights())
        try:
            names = json.loads(index.read_bytes())["weight_map"]
            listed = {str(name): self._directory / file for name, file in names.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{index} has no weight_map of tensor names to files: {error!r}") from error
        for name, path in listed.items():
            if not path.exists():
                raise CheckpointError(f"{path} does not exist; {index.name} says it holds {name}")
        return sorted(set(listed.values())), listed

    def _why_no_weights(self) -> str:
        found = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in self._directory.glob(pattern))
        message = f"{self._directory} has neither {SINGLE_FILE} nor {INDEX_FILE}"
        return f"{message}; weights in safetensors format are needed, found {', '.join(found)}" if found else message


def _read_header(path: Path) -> dict[str, Entry]:
    """Parse a file's header (https://huggingface.co/docs/safetensors, "Format"); raises if data is missing."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if 8 + length > size:
                raise CheckpointError(f"{path} is cut short or damaged: {size} bytes, its header has {8 + length}")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        end = 8 + length + max((value["data_offsets"][1] for value in header.values()), default=0)
        entries = {name: Entry(path, value["dtype"], tuple(value["shape"])) for name, value in header.items()}
    except CheckpointError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{path} has no safetensors header: {error!r}") from error
    if size != end:
        raise CheckpointError(f"{path} is cut short or damaged: {size} bytes, its header says {end}")
    return entries


class RankWeights:
    """One rank's view of a checkpoint: it reads its own part of each tensor, and nothing else, in the wanted dtype.

    The tensors are made where the ops want them, one by one, so that a GPU's never take up the processor's memory.
    """

    def __init__(
        self, checkpoint: Checkpoint, group: Group, dtype: torch.dtype, progress: Progress | None = None
    ) -> None:
        self.group = group
        self.dtype = dtype
        self.device = dispatch.device()
        self._checkpoint = checkpoint
        self._progress = progress
        self._names_read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._checkpoint.entries

    def whole(self, name: str, *shape: int) -> Tensor:
        return self._copy(name, shape, tuple(slice(length) for length in shape))

    def rows(self, name: str, *shape: int) -> Tensor:
        """This rank's part of the first axis."""
        return self._copy(name, shape, self._row_part(shape))

    def columns(self, name: str, *shape: int) -> Tensor:
        """This rank's part of the last axis."""
        return self._copy(name, shape, (*(slice(length) for length in shape[:-1]), self.group.part(shape[-1])))

    def stacked_rows(self, lengths: Mapping[str, int], *shape: int) -> Tensor:
        """This rank's part of several tensors [length, *shape], one below the other."""
        widths = [self.group.width(length) for length in lengths.values()]
        stacked = torch.empty(sum(widths), *shape, dtype=self.dtype, device=self.device)
        for (name, length), target in zip(lengths.items(), torch.split(stacked, widths), strict=True):
            target.copy_(self._read(name, (length, *shape), self._row_part((length, *shape))))
        return stacked

    def warn_of_unread(self) -> None:
        """Log the tensors that nothing asked for: a hint that this is not the model that config.json describes."""
        # Old checkpoints carry the rotary frequencies, which follow from the configuration.
        unread = sorted(name for name in self._checkpoint.entries
                        if name not in self._names_read and not name.endswith("rotary_emb.inv_freq"))
        if unread:
            log.warning("The checkpoint has %d tensors that the model does not use: %s", len(unread), unread[:8])

    def _row_part(self, shape: tuple[int, ...]) -> tuple[slice, ...]:
        return (self.group.part(shape[0]), *(slice(length) for length in shape[1:]))

    def _copy(self, name: str, shape: tuple[int, ...], part: tuple[slice, ...]) -> Tensor:
        tensor = self._read(name, shape, part)
        return torch.empty(tensor.shape, dtype=self.dtype, device=self.device).copy_(tensor)

    def _read(self, name: str, shape: tuple[int, ...], part: tuple[slice, ...]) -> Tensor:
        tensor = self._checkpoint.read(name, shape, part)
        self._names_read.add(name)
        if self._progress is not None:
            self._progress(name, len(self._names_read), len(self._checkpoint.entries))
        return tensor
