"""Sparse vectors (SPLADE, Formal et al. 2021): what a masked language model would write in place of a text's tokens."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.checkpoints.sentence_modules import SpladeModule
from penstock.kernels.linear import PackedWeight, linear
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.pooler_config import HeadLayer
from penstock.shard.pooling.layers import read_head
from penstock.shard.pooling.sums import add_in_order
from penstock.shard.weights.rank_weights import RankWeights

SLICE = 64                               # tokens whose logits are in memory together


class SparseHead:
    """Makes a number for each token of the vocabulary. Each rank computes its own part of these."""

    def __init__(
        self, config: ModelConfig, splade: SpladeModule, head: Sequence[HeadLayer], weights: RankWeights,
        vocabulary: PackedWeight | None = None,
    ) -> None:
        """Reads the layers before the logits, and this rank's rows of the last one, which may be the embedding's; of
        these it takes the `vocabulary` that the model has read in the same dtype, if it has."""
        *transform, last = head
        own = weights.group.part(config.vocab_size)
        self._group = weights.group
        self._splade = splade
        self._vocab_size = config.vocab_size
        self._transform = read_head(transform, config.hidden_size, weights)
        is_own = weights.shape(f"{last.name}.weight") is not None
        name = last.name if is_own else config.names.embedding
        self._weight = vocabulary if vocabulary is not None and not is_own else weights.vocabulary(
            name, config.vocab_size, config.hidden_size)
        bias = last.bias if weights.shape(f"{last.name}.bias") is None else f"{last.name}.bias"
        self._bias = None
        if weights.shape(bias) is not None:
            self._bias = weights.whole(bias, config.vocab_size, dtype=torch.float32)[own].contiguous()

    def __call__(self, x: Tensor, counts: Sequence[int]) -> Tensor | None:
        """Returns for each of S texts what the tokens' logits come to, float32 [S, V], on rank 0, and None on the
        others. x: the vectors of all tokens, float32 [N, C], those of one text's `counts` after another's"""
        texts = [self._joined(rows) for rows in torch.split(x, list(counts))]
        return self._group.gather_columns(torch.stack(texts), self._vocab_size)

    def read(self, row: Tensor) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]:
        """Returns the numbers that are not 0 of one row, and the tokens that they are of, ascending; NaN is among them.
        """
        values = row.numpy()
        indices = np.flatnonzero(values)
        kept = values[indices]
        return indices.astype(np.uint32), kept if self._splade.sums else self._log(kept)

    def _joined(self, x: Tensor) -> Tensor:
        joined = x.new_zeros(1, self._weight.out_features)
        for rows in torch.split(x, SLICE):
            for layer in self._transform:
                rows = layer(rows)
            logits = linear(rows, self._weight, self._bias, out_dtype=torch.float32).relu()
            if self._splade.sums:
                add_in_order(joined, torch.from_numpy(self._log(logits.cpu().numpy())).to(x.device), [len(rows)])
            else:
                joined = torch.maximum(joined, logits.amax(dim=0, keepdim=True))
        return joined[0]

    def _log(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Returns log(1 + x) of each number; by way of float64, so that it is the nearest one wherever the number
        lies."""
        found = np.log1p(values.astype(np.float64))
        return (np.log1p(found) if self._splade.is_double else found).astype(np.float32)
