"""The two layers that know the vocabulary, each split over the ranks by tokens: the embedding and the head."""

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight, linear, weight_rows
from penstock.kernels.lora import AdapterRows
from penstock.kernels.softcap import softcap
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.linear import delta_of
from penstock.shard.layers.norm import read_norm
from penstock.shard.models.config import ModelConfig
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.rank_weights import RankWeights


class VocabEmbedding:
    """Looks up a row of the weight for each token; a rank holds the rows of its own part of the vocabulary."""

    def __init__(self, weight: PackedWeight, vocab_size: int, group: Group) -> None:
        """Takes as weight this rank's rows, [part of vocab_size, C]; the head's own where the two are tied."""
        self._weight = weight
        self._group = group
        self._share = group.width(vocab_size, rank=0)
        self._own = group.part(vocab_size)

    def __call__(self, ids: Tensor) -> Tensor:
        """Returns the rows of ids [T]: [T, C]. Every rank offers one for each token and the owner's is taken."""
        if self._group.world_size == 1:
            return weight_rows(self._weight, ids)
        owners = ids // self._share
        own_rows = (ids - self._own.start).clamp(0, self._own.stop - self._own.start - 1)
        return self._group.from_owners(weight_rows(self._weight, own_rows), owners)


class Embedding:
    """Makes the residual stream of token ids and positions."""

    def __init__(self, config: ModelConfig, weights: RankWeights, weight: PackedWeight) -> None:
        """weight: this rank's rows of the vocabulary"""
        embedding, names = config.embedding, config.names
        self._rows = VocabEmbedding(weight, config.vocab_size, weights.group)
        self._multiplier = torch.tensor(embedding.multiplier, dtype=weights.dtype).item()
        self._first_position = embedding.first_position
        self._positions = None
        if names.positions:
            self._positions = weights.whole(f"{names.positions}.weight", embedding.num_positions, config.hidden_size)
        self._norm = read_norm(config.norm, weights, names.embedding_norm, config.hidden_size)

    def __call__(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Returns [T, C] of ids and positions, both int64 [T]."""
        x = self._rows(ids)
        if self._multiplier != 1:
            x = x * self._multiplier
        if self._positions is not None:
            x = x + self._positions[positions + self._first_position]
        normed, _ = self._norm(x)
        return normed


class VocabHead:
    """Computes the logits of every token, float32 straight from the accumulator."""

    def __init__(self, config: ModelConfig, weights: RankWeights, weight: PackedWeight) -> None:
        """Takes as weight this rank's rows, [part of vocab_size, C]; the embedding's own where the two are tied."""
        self._weight = weight
        self._group = weights.group
        self._config = config.head
        self._vocab_size = config.vocab_size
        self._bias = weights.whole(f"{config.names.head}.bias", config.vocab_size)[
            weights.group.part(config.vocab_size)].contiguous() if config.head.has_bias else None
        own, width = weights.group.part(config.vocab_size), config.hidden_size
        self.site = weights.sites.add([(config.names.head, LinearPart(config.vocab_size, width, own, slice(0, width)))])

    def __call__(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor | None:
        """Returns [R, V] of x [R, C], which is the same on every rank, on rank 0; None on the others."""
        delta = delta_of(x, adapters, self.site, self._weight.out_features)
        own = linear(x, self._weight, self._bias, out_dtype=torch.float32, delta=delta)
        logits = self._group.gather_columns(own, self._vocab_size)
        if logits is None:
            return None
        if self._config.multiplier != 1:
            logits = logits * self._config.multiplier
        return softcap(logits, self._config.softcap) if self._config.softcap else logits
