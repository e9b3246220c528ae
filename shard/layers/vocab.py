"""The two layers that know the vocabulary, each split over the ranks by tokens: the embedding and the head."""

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight, linear, weight_rows
from penstock.shard.communication.distributed import Group


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


class VocabHead:
    """Computes the logits of every token, float32 straight from the accumulator."""

    def __init__(self, weight: PackedWeight, vocab_size: int, group: Group) -> None:
        """Takes as weight this rank's rows, [part of vocab_size, C]; the embedding's own where the two are tied."""
        self._weight = weight
        self._vocab_size = vocab_size
        self._group = group

    def __call__(self, x: Tensor) -> Tensor | None:
        """Returns [R, V] of x [R, C], which is the same on every rank, on rank 0; None on the others."""
        return self._group.gather_columns(linear(x, self._weight, out_dtype=torch.float32), self._vocab_size)
