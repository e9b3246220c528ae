"""The decoder-only transformer (Vaswani et al. 2017; Touvron et al. 2023): embed, N blocks, norm, head."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.block import read_block, waits_for_device
from penstock.shard.layers.equality import inequality
from penstock.shard.layers.fused import fuse, fuse_blocks
from penstock.shard.layers.heads import OwnHeads
from penstock.shard.layers.norm import read_norm
from penstock.shard.layers.recurrence_parts import OwnRecurrence
from penstock.shard.layers.rope import Rotary
from penstock.shard.layers.vocab import Embedding, VocabHead
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.model import Hidden, MemoryLayout, ModelFacts
from penstock.shard.models.model_options import AS_STORED, ModelOptions
from penstock.shard.models.reading import read_model_config
from penstock.shard.models.refusals import refused_linears
from penstock.shard.models.stage import WHOLE, Stage
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.rank_weights import Progress, RankWeights
from penstock.shard.weights.sites import Adaptable

HEADS = ("score.",)
"""The beginnings of the names of tensors of heads, which are read by who makes vectors and scores."""

log = logging.getLogger(__name__)


class Decoder:
    """One rank's slice of a model, or of those of its layers that a stage has. All ranks run the same steps in the same
    order."""

    def __init__(self, config: ModelConfig, weights: RankWeights, stage: Stage = WHOLE) -> None:
        group, names = weights.group, config.names
        own = stage.blocks(config.num_layers)
        self.config = config
        self.dtype = weights.dtype
        self.facts = ModelFacts(
            config.vocab_size, config.context_length, _layout(config, weights, own), config.eos_token_ids,
            config.quantization.numerics, identity=repr(config), pooler=config.pooler)
        self.inequality = inequality(config, group.world_size)
        is_tied = config.head.is_tied or names.head not in weights
        has_head = stage.has_head and config.pooler is None
        embedding = head = None
        if stage.has_embedding or (is_tied and has_head):
            embedding = weights.vocabulary(names.embedding, config.vocab_size, config.hidden_size)
        if has_head:
            head = embedding if is_tied else weights.vocabulary(names.head, config.vocab_size, config.hidden_size)
        self._embedding = Embedding(
            config, weights, embedding) if embedding is not None and stage.has_embedding else None
        rotations = config.attention.rotations
        rotaries = {rotation: Rotary(rotation) for rotation in {rotations[index] for index in own}
                    if rotation is not None}
        blocks = [read_block(config, weights, index, None if rotation is None else rotaries[rotation])
                  for index in own for rotation in [rotations[index]]]
        self.is_capturable = config.pooler is None and not any(waits_for_device(block) for block in blocks)
        self._blocks = [fuse(block) for block in blocks]
        self._whole = fuse_blocks(self._blocks)
        self._norm = read_norm(config.norm, weights, names.norm, config.hidden_size) if stage.has_head else None
        self._head = None if head is None else VocabHead(config, weights, head)
        self.adaptable: Adaptable | None = Adaptable(
            tuple(weights.sites.all), self.dtype, refused_linears(config), stage.elsewhere(names, config.num_layers),
            weights.checkpoint, {names.head: names.embedding} if is_tied else {})

    @classmethod
    def load(
        cls, directory: str | Path, dtype: torch.dtype | None, group: Group, progress: Progress | None = None,
        options: ModelOptions = AS_STORED, stage: Stage = WHOLE,
    ) -> "Decoder":
        """Reads this rank's part of the checkpoint in a directory, in the checkpoint's own dtype if none is given.

        Raises ModelConfigError for a model that cannot be run, or not on so many ranks, CheckpointError for weights.
        """
        config = read_model_config(directory, options)
        config.check_world_size(group.world_size)
        weights = RankWeights(Checkpoint(directory), group, dtype or config.dtype, progress, config.format_of)
        if config.names.embedding not in weights and config.names.without_base.embedding in weights:
            config = replace(config, names=config.names.without_base)
        decoder = cls(config, weights, stage)
        if group.rank == 0:
            others = () if config.pooler is None else (config.names.head, *HEADS)
            weights.warn_of_unread((*stage.elsewhere(config.names, config.num_layers), *others))
            if config.limitation and stage.has_embedding:
                log.warning("The context ends at %d tokens: %s", config.context_length, config.limitation)
        return decoder

    def forward(
        self, input_ids: Tensor, metadata: AttentionMetadata, caches: Sequence[LayerMemory],
        before: tuple[Tensor, Tensor] | None = None,
    ) -> Hidden:
        """Runs the blocks on token ids, int64 [T], each block with its own cache; or on what the stage before has made
        of them, `x` and `delta` of its `Hidden`, which are overwritten."""
        x, delta = before or (self._embed(input_ids, metadata), None)
        if self._whole:
            return Hidden(*self._whole(x, metadata, cast(Sequence[KvCache], caches), delta), metadata.adapters)
        if not self.facts.layout.num_layers:  # nothing is kept of texts that are computed whole
            caches = cast(Sequence[LayerMemory], [None] * len(self._blocks))
        for block, cache in zip(self._blocks, caches, strict=True):
            x, delta = block(x, delta, metadata, cache)
        assert delta is not None, "a model has at least one block"
        return Hidden(x, delta, metadata.adapters)

    def logits(self, hidden: Hidden, rows: Tensor) -> Tensor | None:
        """Returns float32 logits [R, V] after R of the tokens, int64 indices into T, on rank 0; None on the others, and
        of a model that makes vectors or scores."""
        if self._head is None:
            return None
        adapters = hidden.adapters
        if adapters is not None:
            adapters = adapters.of(rows) if adapters.rank(self._head.site) else None
        assert self._norm is not None, "only the last stage has the last norm"
        normed, _ = self._norm(hidden.x[rows], hidden.delta[rows])
        return self._head(normed, adapters)

    def vectors(self, hidden: Hidden, rows: Tensor) -> Tensor:
        """Returns the vectors [R, C] of R of the tokens, int64 indices into T, behind the last norm."""
        assert self._norm is not None, "only the last stage has the last norm"
        normed, _ = self._norm(hidden.x[rows], hidden.delta[rows])
        return normed

    def _embed(self, input_ids: Tensor, metadata: AttentionMetadata) -> Tensor:
        assert self._embedding is not None, "only the first stage has the embedding"
        return self._embedding(input_ids, metadata.positions)


def _layout(config: ModelConfig, weights: RankWeights, own: range) -> MemoryLayout:
    """Returns the layout of this rank's memory of a sequence, for its `own` blocks."""
    if not config.attention.is_causal:   # each text is computed whole
        return MemoryLayout(0, 1, config.attention.head_dim)
    state = None
    if config.recurrence is not None:
        state = OwnRecurrence.of(config.recurrence, weights.group).state_shape(weights.dtype)
    num_kv_heads = len(OwnHeads.of(config.attention, weights.group.rank, weights.group.world_size).kv_heads)
    recurrent = frozenset(index - own.start for index in config.recurrent_blocks if index in own)
    return MemoryLayout(len(own), num_kv_heads, config.attention.head_dim, state, recurrent)
