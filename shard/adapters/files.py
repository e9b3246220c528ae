"""The tensors of an adapter, in PEFT's adapter_model.safetensors."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from penstock.shard.adapters.error import AdapterError
from penstock.shard.weights.safetensors_files import read_header
from penstock.shard.weights.stored import CheckpointError, Entry

TENSORS_FILE = "adapter_model.safetensors"
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")
CHUNK = 1 << 20                          # bytes that are hashed at a time

_MATRIX = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<matrix>[AB])\.(?:default\.)?weight")
_REFUSED = {
    "lora_magnitude_vector": "the magnitudes of DoRA are not served",
    "modules_to_save": "modules that were trained whole are not served",
    "lora_embedding_": "adapters of embeddings are not served",
    "trainable_tokens": "tokens that were trained are not served",
    ".bias": "biases of adapters are not served"}
_COPY = "it is a copy of a weight of the base, which PEFT leaves out with save_pretrained(save_embedding_layers=False)"


@dataclass(frozen=True, slots=True)
class Matrices:
    """The names of A and B of a module, and their shapes: [r, inputs] and [outputs, r]."""

    a: str
    b: str
    rank: int
    in_features: int
    out_features: int


class AdapterFile:
    """Opens the file, and finds the matrices of each module. Raises AdapterError."""

    def __init__(self, directory: Path, digest: str = "") -> None:
        """digest: SHA-256 in hex that the file must have; any if empty."""
        self.path = directory / TENSORS_FILE
        if not self.path.exists():
            raise AdapterError(_why_missing(directory))
        if digest and (found := _digest(self.path)) != digest.lower():
            raise AdapterError(f"{self.path} has the SHA-256 {found}, expected {digest}: it is another adapter's")
        try:
            self.entries = read_header(self.path)
            self._file: Any = safe_open(self.path, framework="pt")  # maps it for as long as this object lives
        except CheckpointError as error:
            raise AdapterError(str(error)) from error
        except (SafetensorError, OSError, RuntimeError) as error:
            raise AdapterError(f"{self.path} cannot be read: {error}") from error
        self.modules = self._modules()

    def read(self, name: str, dtype: torch.dtype) -> Tensor:
        """Returns a matrix in another dtype, on the processor."""
        try:
            stored: Tensor = self._file.get_tensor(name)
            tensor = stored.to(dtype, copy=True)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise AdapterError(f"{self.path}: {name} cannot be read: {error}") from error
        if not torch.isfinite(tensor).all():
            what = "is infinite or not a number" if not torch.isfinite(stored.float()).all() else (
                f"is too large for the model's {dtype}".replace("torch.", ""))
            raise AdapterError(f"{self.path}: {name} has a number that {what}")
        return tensor

    def _modules(self) -> dict[str, Matrices]:
        """Returns the matrices by the names of their modules."""
        found: dict[str, dict[str, str]] = {}
        for name, entry in self.entries.items():
            module, matrix = self._parse(name, entry)
            if matrix in found.setdefault(module, {}):
                raise AdapterError(f"{self.path} has two tensors {name} and {found[module][matrix]} for one matrix")
            found[module][matrix] = name
        if not found:
            raise AdapterError(f"{self.path} has no tensors")
        return {module: self._pair(module, names) for module, names in found.items()}

    def _parse(self, name: str, entry: Entry) -> tuple[str, str]:
        match = _MATRIX.fullmatch(name)
        reason = next((why for part, why in _REFUSED.items() if part in name), None)
        if reason or not match:
            other = _COPY if name.endswith(".weight") and ".lora_" not in name else "it is neither A nor B of a LoRA"
            raise AdapterError(f"{self.path} has the tensor {name}: {reason or other}")
        if entry.dtype not in FLOATS:
            raise AdapterError(f"{self.path}: {name} is {entry.dtype}, expected one of {', '.join(FLOATS)}")
        if len(entry.shape) != 2:
            raise AdapterError(f"{self.path}: {name} has shape {list(entry.shape)}, expected two axes")
        return match["module"], match["matrix"]

    def _pair(self, module: str, names: dict[str, str]) -> Matrices:
        for matrix, other in (("A", "B"), ("B", "A")):
            if matrix not in names:
                raise AdapterError(f"{self.path} has {names[other]}, but no lora_{matrix} of {module}")
        a, b = (self.entries[names[matrix]].shape for matrix in "AB")
        if a[0] != b[1]:
            raise AdapterError(f"{self.path}: {names['A']} has shape {list(a)} and {names['B']} {list(b)}, whose ranks "
                               "differ")
        return Matrices(names["A"], names["B"], a[0], a[1], b[0])


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise AdapterError(f"{path} cannot be read: {error}") from error
    return digest.hexdigest()


def _why_missing(directory: Path) -> str:
    message = f"{directory / TENSORS_FILE} does not exist"
    if (directory / "adapter_model.bin").exists():
        return f"{message}; PEFT's save_pretrained makes it of adapter_model.bin with safe_serialization=True"
    return message
