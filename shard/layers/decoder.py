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
from penstock.shard.communication.own_inputs import NUM_SEGMENTS
from penstock.shard.layers.block import read_block, waits_for_device
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
            config.quantization.numerics, identity=repr(config))
        self.inequality = _inequality(config, group.world_size)
        is_tied = config.head.is_tied or names.head not in weights
        embedding = head = None
        if stage.has_embedding or (is_tied and stage.has_head):
            embedding = weights.vocabulary(names.embedding, config.vocab_size, config.hidden_size)
        if stage.has_head:
            head = embedding if is_tied else weights.vocabulary(names.head, config.vocab_size, config.hidden_size)
        self._embedding = Embedding(
            config, weights, embedding) if embedding is not None and stage.has_embedding else None
        rotations = config.attention.rotations
        rotaries = {rotation: Rotary(rotation) for rotation in {rotations[index] for index in own}
                    if rotation is not None}
        blocks = [read_block(config, weights, index, None if rotation is None else rotaries[rotation])
                  for index in own for rotation in [rotations[index]]]
        self.is_capturable = not any(waits_for_device(block) for block in blocks)
        self._blocks = [fuse(block) for block in blocks]
        self._whole = fuse_blocks(self._blocks)
        self._top = (read_norm(config.norm, weights, names.norm, config.hidden_size),
                     VocabHead(config, weights, head)) if head is not None else None
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
            weights.warn_of_unread(stage.elsewhere(config.names, config.num_layers))
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
        for block, cache in zip(self._blocks, caches, strict=True):
            x, delta = block(x, delta, metadata, cache)
        assert delta is not None, "a model has at least one block"
        return Hidden(x, delta, metadata.adapters)

    def logits(self, hidden: Hidden, rows: Tensor) -> Tensor | None:
        """Returns float32 logits [R, V] after R of the tokens, int64 indices into T, on rank 0; None on the others."""
        assert self._top is not None, "only the last stage has the head"
        norm, head = self._top
        normed, _ = norm(hidden.x[rows], hidden.delta[rows])
        adapters = hidden.adapters
        if adapters is not None:
            adapters = adapters.of(rows) if adapters.rank(head.site) else None
        return head(normed, adapters)

    def _embed(self, input_ids: Tensor, metadata: AttentionMetadata) -> Tensor:
        assert self._embedding is not None, "only the first stage has the embedding"
        return self._embedding(input_ids, metadata.positions)


def _layout(config: ModelConfig, weights: RankWeights, own: range) -> MemoryLayout:
    """Returns the layout of this rank's memory of a sequence, for its `own` blocks."""
    state = None
    if config.recurrence is not None:
        state = OwnRecurrence.of(config.recurrence, weights.group).state_shape(weights.dtype)
    num_kv_heads = len(OwnHeads.of(config.attention, weights.group.rank, weights.group.world_size).kv_heads)
    recurrent = frozenset(index - own.start for index in config.recurrent_blocks if index in own)
    return MemoryLayout(len(own), num_kv_heads, config.attention.head_dim, state, recurrent)


def _inequality(config: ModelConfig, world_size: int) -> str:
    """Says why another number of shards gives other bits; the text is empty if it does not."""
    if NUM_SEGMENTS % world_size:
        return f"{world_size} shards do not divide the {NUM_SEGMENTS} segments of a row-parallel sum"
    attention, form = config.attention, config.recurrence
    inputs = {"heads * dimensions": attention.num_heads * attention.output_dim}
    if form is not None:
        inputs["recurrent heads * dimensions"] = form.num_heads * form.value_dim
    odd = [f"{name} = {size}" for name, size in inputs.items() if size % NUM_SEGMENTS]
    if odd:
        return f"{NUM_SEGMENTS} does not divide {' and '.join(odd)}"
    if len({len(own.heads) for own in OwnHeads.of_all(attention, world_size)}) > 1:
        return (f"{attention.num_heads} heads, which read {attention.num_kv_heads} KV heads, cannot be dealt out "
                f"evenly over {world_size} shards")
    return ""
