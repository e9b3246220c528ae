"""The two files of an adapter, as PEFT writes them. The shards read the tensors; here it is seen what they are."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from penstock.router.fields import Fields, FileError

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
GRANULE = 16
"""Shards pad ranks to multiples of this."""
MAX_CONFIG_BYTES = 1 << 20
MAX_HEADER_BYTES = 8 << 20
"""Of thousands of matrices; Python reads it while all streams wait."""


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """What is read of an adapter before shards load it: SHA-256 in hex of the tensors' file and of the configuration,
    and how many weights it has, with ranks padded as on the shards."""

    digest: str
    config_digest: str
    num_weights: int


def read(folder: Path) -> AdapterFiles:
    """Reads the files, which takes a while. Raises FileError for what is missing, damaged, or can't be served."""
    config_digest = check_config(folder)
    path = folder / TENSORS
    if not path.is_file():
        raise FileError(path, "there is no such file; adapters in other formats are not read")
    try:
        with path.open("rb") as file:
            num_weights = _num_weights(path, file)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from error
    return AdapterFiles(digest, config_digest, num_weights)


def check(folder: Path) -> None:
    """Raises FileError if a file is missing, or the configuration is of an adapter that can't be served."""
    check_config(folder)
    if not (folder / TENSORS).is_file():
        raise FileError(folder / TENSORS, "there is no such file; adapters in other formats are not read")


def check_config(folder: Path) -> str:
    """Returns the SHA-256 of the configuration. Raises FileError if it is of an adapter that can't be served; the
    shards check what depends on the model."""
    path = folder / CONFIG
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from error
    if len(content) > MAX_CONFIG_BYTES:
        raise FileError(path, f"it has more than {MAX_CONFIG_BYTES} bytes")
    config = _object(path, content)
    if (kind := Fields(path, config).text("peft_type")) != "LORA":
        raise FileError(path, f"peft_type: only LORA is served, not {kind:.40}")
    if config.get("use_dora"):
        raise FileError(path, "use_dora: DoRA is not served, only plain LoRA")
    if config.get("modules_to_save"):
        raise FileError(path, "modules_to_save: whole layers of its own can't be served, only LoRA; merge the adapter "
                              "into the model")
    return hashlib.sha256(content).hexdigest()


def _num_weights(path: Path, file: BinaryIO) -> int:
    """Counts the weights, padded, by the header of a safetensors file, and sees that the file is whole."""
    begin = file.read(8)
    length = int.from_bytes(begin, "little")
    if len(begin) < 8 or length > MAX_HEADER_BYTES:
        raise FileError(path, "it is no safetensors file")
    header = _object(path, file.read(length))
    header.pop("__metadata__", None)
    if not header:
        raise FileError(path, "it has no tensors")
    try:
        end = max(int(tensor["data_offsets"][1]) for tensor in header.values())
        num_weights = sum(math.prod(_padded(name, tensor["shape"])) for name, tensor in header.items())
    except (TypeError, KeyError, IndexError, ValueError, OverflowError) as error:
        raise FileError(path, "its header is not that of a safetensors file") from error
    if (size := file.seek(0, 2)) != 8 + length + end:
        raise FileError(path, f"it has {size} bytes, and by its header {8 + length + end}")
    return num_weights


def _padded(name: str, shape: Iterable[object]) -> list[int]:
    """Returns the shape of a tensor on a shard that has all of it: A begins with the rank, and B ends with it."""
    sizes = [_natural(size) for size in shape]
    if sizes and (".lora_A" in name or ".lora_B" in name):
        place = 0 if ".lora_A" in name else -1
        sizes[place] = -(-sizes[place] // GRANULE) * GRANULE
    return sizes


def _natural(number: object) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(number)
    return number


def _object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"it is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise FileError(path, "it is no JSON object")
    return dict(found)
