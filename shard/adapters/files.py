"""The tensors of an adapter, in PEFT's adapter_model.safetensors."""

import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from penstock.shard.adapters.error import AdapterError
from penstock.shard.weights.safetensors_files import parse_header
from penstock.shard.weights.stored import CheckpointError, Entry

TENSORS_FILE = "adapter_model.safetensors"
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")

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
    """Reads the file once, so that what is checked is what is used, whatever becomes of the file meanwhile, and finds
    the matrices of each module. Raises AdapterError."""

    def __init__(self, directory: Path, digest: str = "") -> None:
        """digest: SHA-256 in hex that the file must have; any if empty."""
        self.path = directory / TENSORS_FILE
        if not self.path.exists():
            raise AdapterError(_why_missing(directory))
        try:
            if not self.path.is_file():
                raise AdapterError(f"{self.path} is no file")  # a pipe would be waited for
            content = self.path.read_bytes()
            if digest and (found := hashlib.sha256(content).hexdigest()) != digest.lower():
                raise AdapterError(f"{self.path} has the SHA-256 {found}, expected {digest}: it is another adapter's")
            self.entries = parse_header(self.path, len(content), io.BytesIO(content))
            self._tensors = safetensors.torch.load(content)
        except CheckpointError as error:
            raise AdapterError(str(error)) from error
        except (SafetensorError, OSError, RuntimeError) as error:
            raise AdapterError(f"{self.path} cannot be read: {error}") from error
        self.modules = self._modules()

    def read(self, name: str, dtype: torch.dtype) -> Tensor:
        """Returns a matrix in another dtype, on the processor."""
        stored = self._tensors[name]
        tensor: Tensor = stored.to(dtype, copy=True)
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


def _why_missing(directory: Path) -> str:
    message = f"{directory / TENSORS_FILE} does not exist"
    if (directory / "adapter_model.bin").exists():
        return f"{message}; PEFT's save_pretrained makes it of adapter_model.bin with safe_serialization=True"
    return message
