"""The safetensors files of a checkpoint (https://huggingface.co/docs/safetensors)."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from penstock.shard.weights.stored import CheckpointError, Entry, Span
from penstock.system.regular_files import open_regular, size_of
from penstock.system.safetensors_header import HeaderError, parse_header

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
OTHERS = ("adapter_model", "consolidated")
"""How the names of files begin that hold an adapter, or the same tensors by their authors' names."""
NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")


class SafetensorsFiles:
    """model.safetensors, or the files that model.safetensors.index.json lists, or where there is neither all files of
    weights; see TensorFiles.

    Opening them reads the headers, a few kilobytes, and raises CheckpointError for files that are missing or cut short.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.paths, listed = self._find()
        headers = {path: read_header(path) for path in self.paths}
        self.entries = {name: entry for header in headers.values() for name, entry in header.items()}
        if not listed:
            _check_once(headers.values())
        for name, path in listed.items():
            if name not in headers[path]:
                raise CheckpointError(f"{path}: {INDEX_FILE} says it holds {name}, which is not in it")

    def read(self, name: str, part: tuple[slice, ...]) -> Tensor:
        path = self.entries[name].path
        try:
            # A mapping for each tensor, so that what has been read of the file does not stay in this process's memory.
            with safe_open(path, framework="pt") as file:
                tensor: Tensor = file.get_slice(name)[tuple(slice(axis.start, axis.stop) for axis in part)]
        except (SafetensorError, OSError, RuntimeError) as error:  # the last where there is no memory to map the file
            raise CheckpointError(f"{path}: {name} cannot be read: {error}") from error
        return tensor[tuple(slice(None, None, axis.step) for axis in part)]

    def _find(self) -> tuple[list[Path], dict[str, Path]]:
        """Returns the files in the order of their names, and for each tensor of an index, if there is one, its file."""
        if (self._directory / SINGLE_FILE).exists():
            return [self._directory / SINGLE_FILE], {}
        index = self._directory / INDEX_FILE
        if not index.exists():
            return self._unlisted(), {}
        if not index.is_file():          # a pipe would be waited for
            raise CheckpointError(f"{index} is no file")
        try:
            names = json.loads(index.read_bytes())["weight_map"]
            listed = {str(name): self._directory / file for name, file in names.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{index} has no weight_map of tensor names to files: {error!r}") from error
        for name, path in listed.items():
            if ".." in path.parts or not path.is_relative_to(self._directory):
                raise CheckpointError(f"{index} says that {path} holds {name}, which is not below its folder")
            if not path.exists():
                raise CheckpointError(f"{path} does not exist; {index.name} says it holds {name}")
        return sorted(set(listed.values())), listed

    def _unlisted(self) -> list[Path]:
        """Returns the files of weights of a directory that has no index."""
        paths = sorted(path for path in self._directory.glob("*.safetensors") if not path.name.startswith(OTHERS))
        if not paths:
            raise CheckpointError(self._why_no_weights())
        found = {(match[1], match[3], int(match[2])) for path in paths if (match := NUMBERED.fullmatch(path.name))}
        for stem, count in {(stem, count) for stem, count, _ in found}:
            missing = [number for number in range(1, int(count) + 1) if (stem, count, number) not in found]
            if missing:
                more = f" and {len(missing) - 1} more" * (len(missing) > 1)
                raise CheckpointError(f"{self._directory} has no {stem}-{missing[0]:05}-of-{count}.safetensors{more}, "
                                      "beside others of that count")
        return paths

    def _why_no_weights(self) -> str:
        found = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in self._directory.glob(pattern))
        message = f"{self._directory} has neither {SINGLE_FILE} nor {INDEX_FILE}, nor any other file of weights"
        if not found:
            return message
        return (f"{message}; weights in safetensors format are needed, found {', '.join(found)}: `penstock convert "
                f"{self._directory} OUT` makes them of pytorch_model.bin")


def _check_once(headers: Iterable[dict[str, Entry]]) -> None:
    """Raises CheckpointError for a tensor that is in two files, of which no index says which is meant."""
    found: dict[str, Entry] = {}
    for header in headers:
        for name, entry in header.items():
            if name in found:
                raise CheckpointError(f"{entry.path} and {found[name].path.name} both hold {name}, and there is no "
                                      f"{INDEX_FILE} that says which is the model's")
        found |= header


def read_header(path: Path) -> dict[str, Entry]:
    """Parses a file's header. Raises CheckpointError if data is missing."""
    try:
        with open_regular(path) as file:
            places = parse_header(file, size_of(file))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except HeaderError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return {name: Entry(path, place.dtype, place.shape, Span(place.begin, place.end - place.begin))
            for name, place in places.items()}
