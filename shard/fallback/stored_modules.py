"""The weights of a module's layers as a checkpoint, so that our layers read them as they read files."""

from pathlib import Path

from torch import Tensor, nn

from penstock.shard.weights.stored import STORED_DTYPES, Entry

NAMES = {dtype: name for name, dtype in STORED_DTYPES.items()}


class StoredModules:
    """The parameters of a module in memory; see TensorFiles."""

    def __init__(self, module: nn.Module, path: Path) -> None:
        """path: of the checkpoint that they were read from, for messages"""
        self._tensors = {name: parameter.data for name, parameter in module.named_parameters(remove_duplicate=False)}
        self.paths = [path]
        self.entries = {name: Entry(path, NAMES[tensor.dtype], tuple(tensor.shape))
                        for name, tensor in self._tensors.items() if tensor.dtype in NAMES}

    def read(self, name: str, part: tuple[slice, ...]) -> Tensor:
        return self._tensors[name][part]

    def forget(self, layer: str) -> None:
        """Let go of a layer's tensors, which nothing reads again."""
        for name in [name for name in self._tensors if name.startswith(f"{layer}.")]:
            del self._tensors[name]
