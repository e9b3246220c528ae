"""The safetensors files of a checkpoint: which there are, what they hold, and reading a slice of it."""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
STORED_DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
SAMPLE_BYTES = 4096
NUM_SAMPLES = 8
MAX_HEADER_BYTES = 100_000_000           # the format's own limit


class CheckpointError(ValueError):
    """The weights are missing, damaged or not those of the model: names file, tensor, what was expected and found."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file's header says of one tensor."""

    path: Path
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that a checkpoint is to have, and the part of it that is wanted."""

    name: str
    shape: tuple[int, ...]               # of the whole tensor
    part: tuple[slice, ...]              # a slice of each axis
    dtypes: tuple[str, ...] = tuple(STORED_DTYPES)
    has_any_shape: bool = False          # it is wanted whole, whatever its shape
    is_optional: bool = False            # a tensor of no numbers stands for one that is not there


class Checkpoint:
    """The files of one model directory: model.safetensors, or those that model.safetensors.index.json lists.

    Opening it reads the headers, a few kilobytes, and raises CheckpointError for files that are missing or cut short.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._files, listed = self._find()
        headers = {path: _read_header(path) for path in self._files}
        self.entries = {name: entry for header in headers.values() for name, entry in header.items()}
        for name, path in listed.items():
            if name not in headers[path]:
                raise CheckpointError(f"{path}: {INDEX_FILE} says it holds {name}, which is not in it")

    def read(self, wanted: StoredTensor) -> Tensor:
        """Returns the wanted part of a tensor, in the dtype that it is stored in. Raises CheckpointError.

        It may be a view of the mapped file, which is read when the view is, and whose pages are held as long as it is.
        """
        name, entry = wanted.name, self.entries.get(wanted.name)
        if entry is None:
            raise CheckpointError(f"{self._directory} has no tensor {name}, expected of shape {list(wanted.shape)}")
        if entry.shape != wanted.shape:
            raise CheckpointError(
                f"{entry.path}: {name} has shape {list(entry.shape)}, expected {list(wanted.shape)}")
        if entry.dtype not in wanted.dtypes:
            raise CheckpointError(
                f"{entry.path}: {name} is {entry.dtype}, expected one of {', '.join(wanted.dtypes)}")
        try:
            # A mapping for each tensor, so that what has been read of the file does not stay in this process's memory.
            with safe_open(entry.path, framework="pt") as file:
                tensor: Tensor = file.get_slice(name)[wanted.part]
        except (SafetensorError, OSError, RuntimeError) as error:  # the last where there is no memory to map the file
            raise CheckpointError(f"{entry.path}: {name} cannot be read: {error}") from error
        return tensor

    def digest(self) -> str:
        """Returns a SHA-256 of all names, shapes and dtypes and of a few kilobytes of each file."""
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
        """Returns the files in the order of their names, and for each tensor of an index, if there is one, its file."""
        if (self._directory / SINGLE_FILE).exists():
            return [self._directory / SINGLE_FILE], {}
        index = self._directory / INDEX_FILE
        if not index.exists():
            raise CheckpointError(self._why_no_weights())
        if not index.is_file():          # a pipe would be waited for
            raise CheckpointError(f"{index} is no file")
        try:
            names = json.loads(index.read_bytes())["weight_map"]
            listed = {str(name): self._directory / file for name, file in names.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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
    """Parses a file's header (https://huggingface.co/docs/safetensors, "Format") and raises if data is missing."""
    if not path.is_file():
        raise CheckpointError(f"{path} is no file")  # a pipe would be waited for
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if 8 + length > size:
                raise CheckpointError(f"{path} is cut short or damaged: {size} bytes, its header has {8 + length}")
            if length > MAX_HEADER_BYTES:
                raise CheckpointError(f"{path} is damaged: its header has {length} bytes, at most {MAX_HEADER_BYTES} "
                                      "are allowed")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        end = 8 + length + max((value["data_offsets"][1] for value in header.values()), default=0)
        entries = {name: Entry(path, value["dtype"], tuple(value["shape"])) for name, value in header.items()}
    except CheckpointError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise CheckpointError(f"{path} has no safetensors header: {error!r}") from error
    if size != end:
        raise CheckpointError(f"{path} is cut short or damaged: {size} bytes, its header says {end}")
    return entries
