"""The two files of an adapter, as PEFT writes them. The shards read the tensors; here it is seen what they are."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from penstock.checkpoints.adapter_files import CONFIG, TENSORS, opened_tensors, read_config
from penstock.system.fields import FileError
from penstock.system.safetensors_header import TensorPlace

CHUNK = 1 << 20
"""How many bytes are read at once."""
GRANULE = 16
"""Shards pad ranks to multiples of this."""
MAX_BASE_BYTES = 16 << 30
"""Of the base's weights that PEFT saves beside an adapter's, which are read, and not kept."""


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """The facts of an adapter that are read before shards load it: the SHA-256 of its files in hex, and how many
    weights it has, with ranks padded as on the shards."""

    digest: str
    num_weights: int


class TooManyWeights(ValueError):
    """An adapter has more weights than may be loaded, and was not read further."""

    def __init__(self, num_weights: int) -> None:
        super().__init__(num_weights)
        self.num_weights = num_weights


def read(folder: Path, max_weights: int) -> AdapterFiles:
    """Reads the files, which takes a while. Raises FileError for what is missing, damaged, or can't be served, and
    TooManyWeights."""
    digest = hashlib.sha256(read_config(folder)[1])
    with opened_tensors(folder) as (file, places):
        num_weights = _num_weights(folder / TENSORS, places)
        if num_weights > max_weights:
            raise TooManyWeights(num_weights)
        while content := file.read(CHUNK):
            digest.update(content)
    return AdapterFiles(digest.hexdigest(), num_weights)


def stamp(folder: Path) -> tuple[tuple[int, ...], ...]:
    """Returns the system's marks of the files, which differ once one of them was changed; files that are gone have
    none."""
    return tuple(_stamp(folder / name) for name in (CONFIG, TENSORS))


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except (OSError, ValueError):        # the latter for what is no path
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _num_weights(path: Path, places: Mapping[str, TensorPlace]) -> int:
    """Counts an adapter's weights, padded, by the header of its file."""
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
