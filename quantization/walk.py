"""Runs calibration texts through a model block by block, so that one block's weights are in memory at a time."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.paged_attention import allocate_cache
from penstock.quantization.block import BlockWeights, readers_of
from penstock.quantization.statistics import Watching
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.block import read_block
from penstock.shard.layers.fused import fuse
from penstock.shard.layers.rope import Rotary
from penstock.shard.layers.vocab import Embedding
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.dense import DENSE
from penstock.shard.weights.format import FormatOf
from penstock.shard.weights.rank_weights import RankWeights
from penstock.shard.weights.stored import CheckpointError, Entry, StoredTensor

BLOCK_SIZE = 16
NAMES_OF_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int8: "I8",
                   torch.uint8: "U8", torch.int32: "I32", torch.int64: "I64"}


class InMemory:
    """Tensors that are in memory, as the files of a checkpoint; see TensorFiles."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.paths: list[Path] = []
        self._tensors = tensors
        self.entries = {name: Entry(Path("memory"), NAMES_OF_DTYPES[tensor.dtype], tuple(tensor.shape))
                        for name, tensor in tensors.items()}

    def read(self, name: str, part: tuple[slice, ...]) -> Tensor:
        return self._tensors[name][part]


class Walk:
    """Where the calibration texts are: behind the embedding, or behind the blocks that they have passed."""

    def __init__(self, directory: Path, windows: Tensor) -> None:
        """windows: token ids, int64 [W, T]; each is a sequence of its own."""
        self.checkpoint, self.config = Checkpoint(directory), read_model_config(directory)
        self._names = self.config.names
        self._rotaries = {rotation: Rotary(rotation) for rotation in self.config.rotations}
        weights = RankWeights(self.checkpoint, Group(), torch.float32)
        embedding = Embedding(self.config, weights, weights.vocabulary(
            self._names.embedding, self.config.vocab_size, self.config.hidden_size))
        self._metadata = whole_sequence(windows.shape[1])
        self._hidden: list[tuple[Tensor, Tensor | None]] = [
            (embedding(ids, self._metadata.positions), None) for ids in windows]
        num_blocks = -(-windows.shape[1] // BLOCK_SIZE)
        self._cache = allocate_cache(num_blocks, block_size=BLOCK_SIZE, num_kv_heads=self.config.attention.num_kv_heads,
                                     head_dim=self.config.attention.head_dim, dtype=torch.float32, device="cpu")

    def read(self, index: int) -> BlockWeights:
        """Reads a block's plain tensors, and runs the texts through it to know its inputs.

        Raises CheckpointError if one of these is not a number.
        """
        names = self._names.of_block(index)
        tensors = {name: self.stored(name).float() for name in self._tensors_of(index)}
        readers = readers_of(names, self.config)
        watching = {reader.linears[0]: Watching(tensors[f"{reader.linears[0]}.weight"].shape[1]) for reader in readers}
        self._run(index, tensors, lambda linear: watching.get(linear, DENSE))
        for linear, watched in watching.items():
            if not watched.statistics.hessian.isfinite().all():
                raise CheckpointError(f"{linear}: the inputs that the model computes are not all finite numbers: its "
                                      "weights are damaged, or the texts are beyond what it can read")
        statistics = {linear: watching[reader.linears[0]].statistics for reader in readers for linear in reader.linears}
        return BlockWeights(names, readers, tensors, statistics)

    def go_on(self, index: int, tensors: Mapping[str, Tensor], format_of: FormatOf) -> None:
        """Moves the texts behind a block, with the tensors that it now has, in the formats that they are stored in."""
        self._hidden = self._run(index, tensors, format_of)

    def names_outside_blocks(self) -> list[str]:
        """Returns the names of the tensors that belong to no block."""
        of_blocks = {name for index in range(self.config.num_layers) for name in self._tensors_of(index)}
        return [name for name in self.checkpoint.entries if name not in of_blocks]

    def stored(self, name: str) -> Tensor:
        """Reads a tensor in the dtype that it is stored in."""
        shape = self.checkpoint.entries[name].shape
        return self.checkpoint.read(StoredTensor(name, shape, tuple(slice(length) for length in shape)))

    def _tensors_of(self, index: int) -> list[str]:
        prefix = f"{self._names.blocks.format(index=index)}."
        return [name for name in self.checkpoint.entries if name.startswith(prefix)]

    def _run(
        self, index: int, tensors: Mapping[str, Tensor], format_of: FormatOf
    ) -> list[tuple[Tensor, Tensor | None]]:
        checkpoint = Checkpoint("memory", InMemory(tensors))
        rotation = self.config.attention.rotations[index]
        weights = RankWeights(checkpoint, Group(), torch.float32, format_of=format_of)
        block = fuse(read_block(self.config, weights, index, None if rotation is None else self._rotaries[rotation]))
        return [block(x.clone(), None if delta is None else delta.clone(), self._metadata, self._cache)
                for x, delta in self._hidden]


def whole_sequence(length: int) -> AttentionMetadata:
    """Places one sequence of so many tokens in the first blocks of a cache."""
    positions = torch.arange(length)
    return AttentionMetadata(
        positions=positions, slot_mapping=positions,
        tables=torch.arange(-(-length // BLOCK_SIZE), dtype=torch.int32)[None],
        starts=torch.zeros(1, dtype=torch.int32), counts=torch.tensor([length], dtype=torch.int32))
