"""The two files of an adapter, as PEFT writes them. The shards read the tensors; here it is seen what they are."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

from penstock.system.fields import Fields, FileError
from penstock.system.json_objects import parse_object
from penstock.system.regular_files import open_regular, read_regular, size_of
from penstock.system.safetensors_header import HeaderError, TensorPlace, parse_header

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
GRANULE = 16
"""Shards pad ranks to multiples of this."""
MAX_CONFIG_BYTES, MAX_CONFIG_VALUES = 1 << 20, 1 << 16
MAX_HEADER_BYTES, MAX_HEADER_VALUES = 8 << 20, 1 << 18
"""Of thousands of matrices, which have some ten values each; Python reads them while all streams wait."""
MAX_BASE_BYTES = 16 << 30
"""Of the base's weights that PEFT saves beside an adapter's, which are read, and not kept."""


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """The facts of an adapter that are read before shards load it: SHA-256 in hex of the tensors' file and of the
    configuration, and how many weights it has, with ranks padded as on the shards."""

    digest: str
    config_digest: str
    num_weights: int


class TooManyWeights(ValueError):
    """An adapter has more weights than may be loaded, and was not read further."""

    def __init__(self, num_weights: int) -> None:
        super().__init__(num_weights)
        self.num_weights = num_weights


def read(folder: Path, max_weights: int) -> AdapterFiles:
    """Reads the files, which takes a while. Raises FileError for what is missing, damaged, or can't be served, and
    TooManyWeights."""
    config_digest = check_config(folder)
    path = folder / TENSORS
    with _opened(path) as file:
        num_weights = _num_weights(path, file)
        if num_weights > max_weights:
            raise TooManyWeights(num_weights)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto
    return AdapterFiles(digest, config_digest, num_weights)


def stamp(folder: Path) -> tuple[tuple[int, ...], ...]:
    """Returns the system's marks of the files, which differ once one of them was changed; files that are gone have
    none."""
    return tuple(_stamp(folder / name) for name in (CONFIG, TENSORS))


def check(folder: Path) -> None:
    """Raises FileError if a file is missing, or the configuration is of an adapter that can't be served."""
    check_config(folder)
    with _opened(folder / TENSORS):
        pass


def check_config(folder: Path) -> str:
    """Returns the SHA-256 of the configuration. Raises FileError if it is of an adapter that can't be served; the
    shards check what depends on the model."""
    path = folder / CONFIG
    try:
        content = read_regular(path, MAX_CONFIG_BYTES)
        config = parse_object(content, MAX_CONFIG_VALUES)
    except OSError as error:
        if not os.path.isdir(folder):
            raise FileError(folder, "it must be a directory on the server") from error
        raise FileError(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise FileError(path, str(error)) from error
    if (kind := Fields(path, config).text("peft_type")) != "LORA":
        raise FileError(path, f"peft_type: only LORA is served, not {kind:.40}")
    if config.get("use_dora"):
        raise FileError(path, "use_dora: DoRA is not served, only plain LoRA")
    if config.get("modules_to_save"):
        raise FileError(path, "modules_to_save: whole layers of its own can't be served, only LoRA; merge the adapter "
                              "into the model")
    return hashlib.sha256(content).hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with open_regular(path) as file:
            yield file
    except FileNotFoundError as error:
        raise FileError(path, "there is no such file; adapters in other formats are not read") from error
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from error


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except (OSError, ValueError):        # the latter for what is no path
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _num_weights(path: Path, file: BinaryIO) -> int:
    """Counts an adapter's weights, padded, by the header of its file, and sees that the file is whole."""
    try:
        places = parse_header(file, size_of(file), MAX_HEADER_BYTES, MAX_HEADER_VALUES)
    except HeaderError as error:
        raise FileError(path, str(error)) from error
    if not places:
        raise FileError(path, "it has no tensors")
    own = {name: place for name, place in places.items() if ".lora_" in name}
    if (size := sum(place.end - place.begin for name, place in places.items() if name not in own)) > MAX_BASE_BYTES:
        raise FileError(path, f"it has {size} bytes beside those of its matrices, at most {MAX_BASE_BYTES} are read")
    return sum(prod(_padded(name, place)) for name, place in own.items())


def _padded(name: str, place: TensorPlace) -> list[int]:
    """Returns the shape of a tensor on a shard that has all of it: A begins with the rank, and B ends with it."""
    sizes = list(place.shape)
    if sizes and (".lora_A" in name or ".lora_B" in name):
        axis = 0 if ".lora_A" in name else -1
        sizes[axis] = -(-sizes[axis] // GRANULE) * GRANULE
    return sizes
