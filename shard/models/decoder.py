"""The decoder-only transformer (Vaswani et al. 2017; Touvron et al. 2023): embed, N blocks, norm, head."""

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.rms_norm import rms_norm
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.fused import fuse, fuse_blocks
from penstock.shard.layers.linear import NUM_SEGMENTS, num_own_segments
from penstock.shard.layers.rope import Rotary
from penstock.shard.layers.vocab import VocabEmbedding, VocabHead
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.rotary_scaling import Rotation
from penstock.shard.models.weight_options import AS_STORED, WeightOptions
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.rank_weights import Progress, RankWeights

log = logging.getLogger(__name__)


class Block:
    """Attention and a feed-forward network, of its family's choice, each behind a norm and added to what came in."""

    def __init__(self, config: ModelConfig, weights: RankWeights, index: int, rotary: Rotary) -> None:
        family = config.family
        names = family.names.of_block(index)
        attention = family.attention(config, index)(config, weights, names, index, rotary)
        feed_forward = family.feed_forward(config, index)(config, weights, names)
        self.attention = fuse(attention) or attention
        self.feed_forward = fuse(feed_forward) or feed_forward

    def forward(
        self, x: Tensor, delta: Tensor | None, metadata: AttentionMetadata, cache: KvCache
    ) -> tuple[Tensor, Tensor]:
        """Returns the residual stream [T, C] and what is yet to be added to it: the next norm adds it as it reads."""
        x, delta = self.attention(x, delta, metadata, cache)
        return self.feed_forward(x, delta)


@dataclass(frozen=True, slots=True)
class Hidden:
    """What the blocks make of a step's T tokens: the residual stream and what is yet to be added to it, both [T, C]."""

    x: Tensor
    delta: Tensor


class Decoder:
    """One rank's slice of a model. All ranks of the group run the same steps in the same order."""

    def __init__(self, config: ModelConfig, weights: RankWeights) -> None:
        group, names = weights.group, config.family.names
        self.config = config
        self.dtype = weights.dtype
        self.num_kv_heads = config.num_kv_heads // group.world_size  # of this rank
        self.inequality = _inequality(config, group.world_size)
        embedding = weights.column_parallel({names.embedding: config.vocab_size}, config.hidden_size)
        is_tied = config.is_head_tied or names.head not in weights
        head = embedding if is_tied else weights.column_parallel({names.head: config.vocab_size}, config.hidden_size)
        self._embedding = VocabEmbedding(embedding, config.vocab_size, group)
        rotary = Rotary(config.rotation)
        self._blocks = [Block(config, weights, index, rotary) for index in range(config.num_layers)]
        self._whole = fuse_blocks([(block.attention, block.feed_forward) for block in self._blocks])
        self._norm = weights.whole(f"{names.norm}.weight", config.hidden_size)
        self._head = VocabHead(head, config.vocab_size, group)

    @classmethod
    def load(
        cls, directory: str | Path, dtype: torch.dtype | None, group: Group, progress: Progress | None = None,
        options: WeightOptions = AS_STORED,
    ) -> "Decoder":
        """Reads this rank's part of the checkpoint in a directory, in the checkpoint's own dtype if none is given.

        Raises ModelConfigError for a model that cannot be run, or not on so many ranks, CheckpointError for weights.
        """
        config = ModelConfig.from_dir(directory, options)
        config.check_world_size(group.world_size)
        weights = RankWeights(Checkpoint(directory), group, dtype or config.dtype, progress, config.format_of)
        decoder = cls(config, weights)
        if group.rank == 0:
            weights.warn_of_unread()
            _warn_of_limitation(config.rotation)
        return decoder

    @property
    def keeps_tp_equality(self) -> bool:
        """Tells whether any number of shards that divides 8 gives these bits; `inequality` says why not."""
        return not self.inequality

    def forward(self, input_ids: Tensor, metadata: AttentionMetadata, caches: list[KvCache]) -> Hidden:
        """Runs the blocks on token ids, int64 [T], each block with its own cache."""
        x, delta = self._embedding(input_ids), None
        if self._whole:
            return Hidden(*self._whole(x, metadata, caches))
        for block, cache in zip(self._blocks, caches, strict=True):
            x, delta = block.forward(x, delta, metadata, cache)
        assert delta is not None, "a model has at least one block"
        return Hidden(x, delta)

    def logits(self, hidden: Hidden, rows: Tensor) -> Tensor | None:
        """Returns float32 logits [R, V] after R of the tokens, int64 indices into T, on rank 0; None on the others."""
        normed, _ = rms_norm(hidden.x[rows], self._norm, self.config.rms_norm_eps, hidden.delta[rows])
        return self._head(normed)


def _warn_of_limitation(rotation: Rotation) -> None:
    if rotation.limitation:
        log.warning("The context ends at %d tokens: %s", rotation.context_length, rotation.limitation)


def _inequality(config: ModelConfig, world_size: int) -> str:
    """Says why another number of shards gives other bits; the text is empty if it does not."""
    if NUM_SEGMENTS % world_size:
        return f"{world_size} shards do not divide the {NUM_SEGMENTS} segments of a row-parallel sum"
    inputs = {
        "num_attention_heads * head_dim": config.num_heads * config.head_dim,
        "intermediate_size": config.intermediate_size,
    }
    odd = [f"{name} = {size}" for name, size in inputs.items() if not num_own_segments(size, world_size)]
    return f"{NUM_SEGMENTS} does not divide {' and '.join(odd)}" if odd else ""
