"""The weights of a checkpoint: which tensors there are, and reading a slice of one."""

from pathlib import Path

import torch
from torch import Tensor

from penstock.shard.weights.digest import WeightsDigest, stamps
from penstock.shard.weights.digest_cache import Stamp
from penstock.shard.weights.gguf_files import GGUF_INDEX_FILE, GgufFiles
from penstock.shard.weights.safetensors_files import SafetensorsFiles
from penstock.shard.weights.stored import STORED_DTYPES, CheckpointError, StoredTensor, TensorFiles


class Checkpoint:
    """The files of one model directory, in safetensors' format or those of GGUF that model.gguf.json lists.

    Opening it reads what the files say they hold, and raises CheckpointError for files that are missing or cut short.
    """

    def __init__(self, directory: str | Path, files: TensorFiles | None = None) -> None:
        """files: in place of those in the directory."""
        self._directory = Path(directory)
        if files is None:
            is_gguf = (self._directory / GGUF_INDEX_FILE).exists()
            files = GgufFiles(self._directory) if is_gguf else SafetensorsFiles(self._directory)
        self._files = files
        self.entries = files.entries

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first tensor of plain numbers that shards compute with, as transformers takes it; float32 if
        there is none."""
        kinds = (entry.dtype for entry in self.entries.values())
        return next((STORED_DTYPES[kind] for kind in kinds if kind in ("F32", "BF16", "F16")), torch.float32)

    def read(self, wanted: StoredTensor) -> Tensor:
        """Returns the wanted part of a tensor, as TensorFiles does. Raises CheckpointError."""
        name, entry = wanted.name, self.entries.get(wanted.name)
        if entry is None:
            where = self._files.paths[0] if len(self._files.paths) == 1 else self._directory
            raise CheckpointError(f"{where} has no tensor {name}, expected of shape {list(wanted.shape)}")
        if entry.shape != wanted.shape:
            raise CheckpointError(
                f"{entry.path}: {name} has shape {list(entry.shape)}, expected {list(wanted.shape)}")
        if entry.dtype not in wanted.dtypes:
            raise CheckpointError(
                f"{entry.path}: {name} is {entry.dtype}, expected one of {', '.join(wanted.dtypes)}")
        return self._files.read(name, wanted.part)

    def begin_digest(self) -> WeightsDigest:
        """Begins to compute the digest of all that the tensors say, beside whatever the caller does meanwhile."""
        return WeightsDigest(self._files)

    def digest(self) -> str:
        """Returns that digest, in hex. Raises CheckpointError."""
        return self.begin_digest().hex()

    def stamps(self) -> dict[Path, Stamp]:
        """Returns the system's stamp of each file now."""
        return stamps(self._files)
