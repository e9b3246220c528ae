"""The encoder (Devlin et al. 2019): embed, N blocks in which all tokens of a text see one another."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.linear import PackedWeight
from penstock.kernels.linear.tiled import has_tiles
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.distances import read_distances
from penstock.shard.layers.encoder_block import read_encoder_block, read_named_norm
from penstock.shard.layers.equality import inequality
from penstock.shard.layers.fused_encoder import fuse_encoder
from penstock.shard.layers.rope import Rotary
from penstock.shard.layers.vocab import VocabEmbedding
from penstock.shard.models.encoder_config import HEADS_OF_ENCODERS, EncoderConfig
from penstock.shard.models.model import Hidden, MemoryLayout, ModelFacts
from penstock.shard.models.model_options import AS_STORED, ModelOptions
from penstock.shard.models.reading import read_model_config
from penstock.shard.models.refusals import refused_linears
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.rank_weights import Progress, RankWeights
from penstock.shard.weights.sites import Adaptable


class Encoder:
    """One rank's slice of an encoder. All ranks run the same steps in the same order."""

    is_capturable = False                # a step of whole texts has sizes of its own

    def __init__(self, config: EncoderConfig, weights: RankWeights) -> None:
        self.config = config
        self.dtype = weights.stored_dtype
        self.facts = ModelFacts(
            config.vocab_size, config.context_length, MemoryLayout(0, 1, config.attention.head_dim),
            numerics=config.quantization.numerics + "tiles/" * weights.has_tiles, identity=repr(config),
            pooler=config.pooler)
        self.inequality = inequality(config, weights.group.world_size)
        self.vocabulary = weights.vocabulary(config.names.embedding, config.vocab_size, config.hidden_size)
        """This rank's rows of the vocabulary, which a head may be tied to."""
        self._embedding = EncoderEmbedding(config, weights, self.vocabulary)
        rotaries = {rotation: Rotary(rotation) for rotation in config.rotations}
        bias = read_distances(config, weights)
        self._blocks = [
            read_encoder_block(config, weights, index, None if rotation is None else rotaries[rotation], bias)
            for index, rotation in enumerate(config.attention.rotations)]
        self._fused = fuse_encoder(self._blocks)
        self._norm = read_named_norm(config, weights, config.names.norm)
        self.adaptable: Adaptable | None = Adaptable(
            tuple(weights.sites.all), weights.dtype, refused_linears(config), checkpoint=weights.checkpoint)

    @classmethod
    def load(
        cls, directory: str | Path, dtype: torch.dtype | None, group: Group, progress: Progress | None = None,
        options: ModelOptions = AS_STORED,
    ) -> "Encoder":
        """Reads this rank's part of the checkpoint in a directory, in the checkpoint's own dtype if none is given.

        Raises ModelConfigError for a model that cannot be run, or not on so many ranks, CheckpointError for weights.
        """
        config = read_model_config(directory, options)
        assert isinstance(config, EncoderConfig), "the architecture is an encoder's"
        config.check_world_size(group.world_size)
        stored = dtype or config.dtype
        weights = RankWeights(
            Checkpoint(directory), group, activations_dtype(stored), progress, config.format_of, stored, has_tiles())
        encoder = cls(config, weights)
        if group.rank == 0:
            weights.warn_of_unread(tuple(f"{name}." for name in (*HEADS_OF_ENCODERS, f"{config.base}pooler")))
        return encoder

    def forward(self, input_ids: Tensor, metadata: AttentionMetadata, caches: Sequence[LayerMemory]) -> Hidden:
        """Runs the blocks on the token ids of whole texts, int64 [T]; nothing of them is kept."""
        x, delta = self._run_blocks(self._embedding(input_ids, metadata), metadata)
        x, _ = self._norm(x, delta)
        return Hidden(x, x.new_zeros(()).expand(x.shape), metadata.adapters)

    def _run_blocks(self, x: Tensor, metadata: AttentionMetadata) -> tuple[Tensor, Tensor | None]:
        """Returns the residual stream behind the last block, and what is yet to be added to it, if anything is."""
        if self._fused is not None:
            return self._fused(x, metadata)
        delta: Tensor | None = None
        for block in self._blocks:
            x, delta = block(x, delta, metadata)
        return x, delta

    def logits(self, hidden: Hidden, rows: Tensor) -> Tensor | None:
        """Returns None: an encoder says nothing of the token after a text."""
        return None

    def vectors(self, hidden: Hidden, rows: Tensor) -> Tensor:
        """Returns the vectors [R, C] of R of the tokens, int64 indices into T."""
        return hidden.x[rows]


def activations_dtype(stored: torch.dtype) -> torch.dtype:
    """Returns the dtype of the activations of an encoder whose weights are stored in this one: float32 on a processor,
    which multiplies it as fast, for vectors are compared, and show each error."""
    return stored if dispatch.kernel_set() == "gpu" else torch.float32


class EncoderEmbedding:
    """Makes the residual stream of token ids, positions, and which text of a pair each token is of."""

    def __init__(self, config: EncoderConfig, weights: RankWeights, vocabulary: PackedWeight) -> None:
        names, width = config.names, config.hidden_size
        self._rows = VocabEmbedding(vocabulary, config.vocab_size, weights.group)
        self._dtype = weights.dtype
        self._first_position = config.embedding.first_position
        self._positions = weights.whole(
            f"{names.positions}.weight", config.embedding.num_positions, width) if names.positions else None
        self._types = weights.whole(
            f"{names.token_types}.weight", config.num_token_types, width) if config.num_token_types else None
        self._norm = read_named_norm(config, weights, names.embedding_norm)

    def __call__(self, ids: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Returns [T, C] of ids, int64 [T]."""
        x = self._rows(ids).to(self._dtype)
        if self._types is not None:
            has_pairs = metadata.texts is not None and len(self._types) > 1
            x = x + (self._types[metadata.texts] if has_pairs else self._types[0])
        if self._positions is not None:
            x = x + self._positions[self._place(ids, metadata.positions)]
        normed, _ = self._norm(x)
        return normed

    def _place(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Returns the rows of tokens at these positions of their texts. A table that begins with the row of padding has
        the texts' behind it: padding amid a text has its own row, and the tokens behind count on without it."""
        if not self._first_position:
            return positions
        padding = self._first_position - 1
        counts = (ids != padding).long()
        ends = counts.cumsum(0)
        firsts = torch.arange(len(ids), device=ids.device) - positions
        return (ends - ends[firsts] + counts[firsts]) * counts + padding
