"""The part of a checkpoint that one rank reads."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight
from penstock.kernels.linear.segmented import join
from penstock.kernels.linear.stacked import stack as stack_weights
from penstock.shard.communication.distributed import Group
from penstock.shard.communication.own_inputs import OwnInputs, inner_inputs
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.dense import DENSE, Dense, dense_everywhere, stack
from penstock.shard.weights.format import ITSELF, FormatOf, LinearError, LinearPart, Place
from penstock.shard.weights.sites import Sites
from penstock.shard.weights.stored import STORED_DTYPES, CheckpointError, StoredTensor
from penstock.shard.weights.tiles import in_tiles

log = logging.getLogger(__name__)

WITHOUT_USE = (
    "rotary_emb.inv_freq", "embeddings.position_ids",  # in old checkpoints: these follow from the configuration
    ".input_scale", ".output_scale", ".k_scale", ".v_scale",  # of activations, whose scales are found as they come
)

Progress = Callable[[str, int, int], None]  # tensor read, tensors read so far, tensors in the checkpoint


class RankWeights:
    """One rank's view of a checkpoint: it reads this rank's part of each tensor, and nothing else.

    The weights are made where the ops want them, linear by linear, so that a GPU's never take up the processor's
    memory.
    """

    def __init__(
        self, checkpoint: Checkpoint, group: Group, dtype: torch.dtype, progress: Progress | None = None,
        format_of: FormatOf = dense_everywhere, stored_dtype: torch.dtype | None = None, has_tiles: bool = False,
    ) -> None:
        """dtype: of the activations, which norms and biases are converted to; stored_dtype: of linears of plain
        numbers, if it is another one; has_tiles: whether those are multiplied in tiles"""
        self.group = group
        self.dtype = dtype
        self.stored_dtype = stored_dtype or dtype
        self.has_tiles = has_tiles
        self.sites = Sites()
        self.checkpoint = checkpoint
        self._progress = progress
        self._format_of = format_of
        self._names_read: set[str] = set()

    def __contains__(self, layer: str) -> bool:
        """Tells whether the checkpoint has a tensor of the layer of this name."""
        return any(name.startswith(f"{layer}.") for name in self.checkpoint.entries)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Returns the shape of a tensor; None if the checkpoint has none of this name."""
        entry = self.checkpoint.entries.get(name)
        return None if entry is None else entry.shape

    def whole(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Reads a tensor that every rank has whole. dtype: what it is converted to, if not the activations'."""
        stored = StoredTensor(name, shape, tuple(slice(length) for length in shape))
        return stack([self._read(stored)], dtype or self.dtype)

    def biases(self, parts: Sequence[tuple[str, LinearPart]]) -> Tensor:
        """Reads the biases of these parts of linears and puts them one behind the other."""
        return stack([self._read(StoredTensor(f"{name}.bias", (part.out_features,), (part.rows,)))
                      for name, part in parts], self.dtype)

    def linears(self, parts: Sequence[tuple[str, LinearPart]]) -> PackedWeight:
        """Reads these parts of linears, of the same inputs, and packs them as one weight; a name may come twice."""
        return self._pack(parts, 1, self.has_tiles)

    def plain(self, linear: str, out_features: int, in_features: int) -> PackedWeight:
        """Reads all of a linear that is multiplied in plain numbers wherever it is stored so, whatever others are; in
        float32, if it is stored so."""
        part = LinearPart(out_features, in_features, slice(0, out_features), slice(0, in_features))
        entry = self.checkpoint.entries.get(f"{linear}.weight")
        if entry is None or entry.dtype not in STORED_DTYPES:
            return self.linears([(linear, part)])
        dtype = torch.float32 if entry.dtype == "F32" else self.dtype
        return DENSE.pack([[self._read(stored) for stored in DENSE.tensors(linear, part)]], [part], 1, dtype)

    def all_outputs(self, outputs: Mapping[str, int], in_features: int) -> list[tuple[str, LinearPart]]:
        """Returns linears that every rank has whole. outputs: the name of each, and its number of outputs"""
        return [(name, LinearPart(length, in_features, slice(0, length), slice(0, in_features)))
                for name, length in outputs.items()]

    def own_outputs(
        self, outputs: Mapping[str, int], in_features: int, place: Place = ITSELF
    ) -> list[tuple[str, LinearPart]]:
        """Returns this rank's parts of linears whose outputs are the inner ones of a feed-forward network.

        outputs: the name of each linear and its number of outputs over all ranks
        """
        return [(name, LinearPart(length, in_features, self.own_inner(length).part, slice(0, in_features), place))
                for name, length in outputs.items()]

    def own_halves(
        self, linear: str, length: int, in_features: int, place: Place = ITSELF
    ) -> list[tuple[str, LinearPart]]:
        """Returns this rank's parts of two linears that are stored as one, each with `length` outputs over all ranks,
        one behind the other."""
        own = self.own_inner(length).part
        return [(linear, LinearPart(2 * length, in_features, slice(first + own.start, first + own.stop),
                                    slice(0, in_features), place)) for first in (0, length)]

    def vocabulary(self, layer: str, vocab_size: int, width: int) -> PackedWeight:
        """Reads this rank's rows of a layer that has one for each token."""
        own = self.group.part(vocab_size)
        return self._pack([(layer, LinearPart(vocab_size, width, own, slice(0, width)))], 1, are_tiled=False)

    def own_inner(self, length: int) -> OwnInputs:
        """Returns this rank's part of the inner width of a feed-forward network."""
        return inner_inputs(length, self.group.rank, self.group.world_size)

    def row_parallel(
        self, linear: str, out_features: int, in_features: int, own: OwnInputs, place: Place = ITSELF
    ) -> PackedWeight:
        """Reads the columns of a linear for this rank's inputs."""
        def read(columns: slice, segments: int) -> PackedWeight:
            part = LinearPart(out_features, in_features, slice(0, out_features), columns, place)
            return self._pack([(linear, part)], segments, self.has_tiles)

        if len({*own.lengths}) == 1:
            return read(own.part, len(own.segments))
        return join([read(each, 1) for each in own.segments if each.start < each.stop], len(own.segments))

    def warn_of_unread(self, elsewhere: tuple[str, ...] = ()) -> None:
        """Logs the tensors that nothing asked for: a hint that this is not the model that config.json describes. Those
        whose names begin with what is `elsewhere` are for others to read."""
        unread = sorted(name for name in self.checkpoint.entries if name not in self._names_read
                        and not name.endswith(WITHOUT_USE) and not name.startswith(elsewhere))
        if unread:
            log.warning("The checkpoint has %d tensors that the model does not use: %s", len(unread), unread[:8])

    def _pack(self, parts: Sequence[tuple[str, LinearPart]], segments: int, are_tiled: bool) -> PackedWeight:
        """Packs parts with the same columns: those that follow one another in one format as one weight."""
        packed = []
        for format_, group in groupby(parts, lambda named: self._format_of(named[0])):
            alike = list(group)
            if are_tiled:
                format_ = in_tiles(format_)
            dtype = self.stored_dtype if isinstance(format_, Dense) else self.dtype
            linears = [[self._read(stored) for stored in format_.tensors(name, part)] for name, part in alike]
            try:
                packed.append(format_.pack(linears, [part for _, part in alike], segments, dtype))
            except LinearError as error:
                raise self._complaint(alike[error.index][0], error) from error
        return stack_weights(packed)

    def _complaint(self, linear: str, error: LinearError) -> CheckpointError:
        """Names the file of a linear and the tensor, with whose name the error begins."""
        path = next(entry.path for name, entry in self.checkpoint.entries.items() if name.startswith(linear))
        return CheckpointError(f"{path}: {linear}.{error}")

    def _read(self, stored: StoredTensor) -> Tensor:
        entry = self.checkpoint.entries.get(stored.name)
        if entry is None and stored.is_optional:
            return torch.empty(0)
        if entry is not None and stored.has_any_shape:
            stored = replace(stored, shape=entry.shape, part=tuple(slice(length) for length in entry.shape))
        tensor = self.checkpoint.read(stored)
        self._names_read.add(stored.name)
        if self._progress is not None:
            self._progress(stored.name, len(self._names_read), len(self.checkpoint.entries))
        return tensor
