"""The tensors of an adapter, in PEFT's adapter_model.safetensors."""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from penstock.checkpoints.adapter_files import TENSORS, opened_tensors
from penstock.shard.adapters.base_copies import BaseCopies
from penstock.system.fields import FileError
from penstock.system.safetensors_header import TensorPlace

FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
CHUNK = 16 << 20                         # bytes that are read at once of what is not kept

_MATRIX = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<matrix>[AB])\.(?:default\.)?weight")
_REFUSED = {
    "lora_magnitude_vector": "the magnitudes of DoRA are not served",
    "modules_to_save": "modules that were trained whole are not served",
    "lora_embedding_": "adapters of embeddings are not served",
    "trainable_tokens": "tokens that were trained are not served",
    "lora_diag": "the singular values of KaSA are not served",
    "lora_monteclora_sampler": "samplers of Monteclora are not served",
    ".lora_A.bias": "biases of adapters are not served",
    ".lora_B.bias": "biases of adapters are not served"}
_OF_TRAINING = ".lora_velora_embed"      # what VeLoRA's backward pass projects by


@dataclass(frozen=True, slots=True)
class Matrices:
    """The names of A and B of a module, and their shapes: [r, inputs] and [outputs, r]."""

    a: str
    b: str
    rank: int
    in_features: int
    out_features: int


class AdapterFile:
    """Has the matrices of each module, and the tensors of their names, in a dtype on the processor. Reads the file
    once, from its first byte to its last, so that what is checked is what is used, whatever becomes of the file
    meanwhile. Raises FileError."""

    def __init__(
        self, directory: Path, config_digest: bytes, digest: str, dtype: torch.dtype, base: BaseCopies
    ) -> None:
        """digest: SHA-256 in hex that `config_digest` and the file must have together; any if empty."""
        self.path = directory / TENSORS
        self._dtype = dtype
        self._base = base
        self.tensors: dict[str, Tensor] = {}
        with opened_tensors(directory) as (file, places):
            self.modules = self._modules(places)
            self._read(file, places, config_digest, digest.lower())

    def _read(self, file: BinaryIO, places: dict[str, TensorPlace], config_digest: bytes, digest: str) -> None:
        known = hashlib.sha256(config_digest)

        def chunks(length: int, most: int) -> Iterator[bytearray]:
            for begin in range(0, length, most):
                content = bytearray(min(most, length - begin))
                if file.readinto(content) < len(content):  # type: ignore[attr-defined]
                    raise FileError(self.path, "it was cut short while it was read")
                known.update(content)
                yield content

        for _ in chunks(min((place.begin for place in places.values()), default=0), CHUNK):
            pass
        for name, place in sorted(places.items(), key=lambda each: each[1].begin):
            self._take_in(name, place, chunks)
        if digest and known.hexdigest() != digest:
            raise FileError(self.path, f"the adapter's files have the SHA-256 {known.hexdigest()}, expected {digest}: "
                            "they have changed")

    def _take_in(self, name: str, place: TensorPlace, chunks: Callable[[int, int], Iterator[bytearray]]) -> None:
        """Keeps a matrix; of a copy of the base's weight it sees that it is one."""
        length = place.end - place.begin
        if _MATRIX.fullmatch(name):
            for content in chunks(length, max(length, 1)):
                stored = torch.frombuffer(content, dtype=FLOATS[place.dtype]).view(place.shape)
                self.tensors[name] = self._converted(name, stored)
            return
        row = max(length // max(1, *place.shape[:1]), 1)
        rows = max(1, CHUNK // row)
        for number, content in enumerate(chunks(length, rows * row)):
            if name.endswith(_OF_TRAINING):
                continue
            part = torch.frombuffer(content, dtype=FLOATS[place.dtype]).view(-1, *place.shape[1:])
            if not self._base.has(name, part, number * rows):
                raise FileError(self.path, f"{name:.200} is another weight than the base's, which was trained "
                                "with the adapter: modules that were trained whole are not served")

    def _converted(self, name: str, stored: Tensor) -> Tensor:
        tensor = stored.to(self._dtype, copy=True)
        if not torch.isfinite(tensor).all():
            what = "is infinite or not a number" if not torch.isfinite(stored.float()).all() else (
                f"is too large for the model's {self._dtype}".replace("torch.", ""))
            raise FileError(self.path, f"{name:.200} has a number that {what}")
        return tensor

    def _modules(self, places: dict[str, TensorPlace]) -> dict[str, Matrices]:
        """Returns the matrices by the names of their modules."""
        found: dict[str, dict[str, str]] = {}
        for name, place in places.items():
            if (matrix := self._parse(name, place)) is None:
                continue
            module, which = matrix
            if which in found.setdefault(module, {}):
                raise FileError(self.path, f"it has two tensors {name:.200} and {found[module][which]:.200} for one "
                                "matrix")
            found[module][which] = name
        if not found:
            raise FileError(self.path, "it has no tensors of LoRA")
        return {module: self._pair(module, names, places) for module, names in found.items()}

    def _parse(self, name: str, place: TensorPlace) -> tuple[str, str] | None:
        """Returns the module of a matrix, and which it is; None for what changes nothing."""
        if name.endswith(_OF_TRAINING):
            return None
        match = _MATRIX.fullmatch(name)
        reason = next((why for part, why in _REFUSED.items() if part in name), None)
        if not match and not reason:
            reason = self._base.fault(name, place.shape) if ".lora_" not in name else "it is neither A nor B of a LoRA"
        if reason:
            raise FileError(self.path, f"it has the tensor {name:.200}: {reason}")
        if place.dtype not in FLOATS:
            raise FileError(self.path, f"{name:.200} is {place.dtype}, expected one of {', '.join(FLOATS)}")
        if not match:
            return None
        if len(place.shape) != 2:
            raise FileError(self.path, f"{name:.200} has shape {list(place.shape)}, expected two axes")
        return match["module"], match["matrix"]

    def _pair(self, module: str, names: dict[str, str], places: dict[str, TensorPlace]) -> Matrices:
        for matrix, other in (("A", "B"), ("B", "A")):
            if matrix not in names:
                raise FileError(self.path, f"it has {names[other]:.200}, but no lora_{matrix} of {module:.200}")
        a, b = (places[names[matrix]].shape for matrix in "AB")
        if a[0] != b[1]:
            raise FileError(self.path, f"{names['A']:.200} has shape {list(a)} and {names['B']:.200} {list(b)}, "
                            "whose ranks differ")
        return Matrices(names["A"], names["B"], a[0], a[1], b[0])
