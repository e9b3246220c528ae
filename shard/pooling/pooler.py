"""Makes vectors and scores of texts, from the vectors of their tokens."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from penstock.contract.pooling import Task
from penstock.kernels.linear import PackedWeight
from penstock.shard.communication.distributed import Group
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.pooler_config import PoolerConfig
from penstock.shard.pooling.layers import PooledLayer, normalized, read_head, read_modules
from penstock.shard.pooling.scores import TokenScores
from penstock.shard.pooling.splade import SparseHead
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.rank_weights import RankWeights


class Pooler:
    """Has the layers behind the tokens' vectors. All of them compute in float32, and a text's bits are its own."""

    def __init__(
        self, config: PoolerConfig, model: ModelConfig, directory: Path, group: Group,
        vocabulary: PackedWeight | None = None,
    ) -> None:
        """Reads the layers' weights, but for the model's `vocabulary`, if it has that in float32. Raises
        CheckpointError."""
        self.config = config
        weights = RankWeights(Checkpoint(directory), group, torch.float32, format_of=model.format_of)
        width = model.hidden_size * len(config.poolings)
        self._of_tokens = read_head(config.of_tokens, model.hidden_size, weights)
        self._layers: list[PooledLayer]
        self._layers, digests = read_modules(config.layers, width, group)
        self._layers += read_head(config.head, width, weights)
        if config.score_tokens:
            self._layers.append(TokenScores(model, weights, config.score_tokens))
        self.sparse = None if config.splade is None else SparseHead(
            model, config.splade, config.vocabulary, weights, vocabulary)
        self.vector_size = config.vector_size(model.hidden_size, model.vocab_size)
        self.token_size = model.hidden_size if Task.EMBED_ALL in config.tasks else 0
        self.identity = f"{config!r} {digests}"
        """Names all that it computes with beside the model's own weights."""

    def of_tokens(self, x: Tensor) -> Tensor:
        """Returns the vectors that are pooled, of those of tokens, float32 [N, C]."""
        for layer in self._of_tokens:
            x = layer(x)
        return x

    def __call__(self, x: Tensor) -> Tensor:
        """Returns vectors, or raw scores, [R, N] of pooled vectors, float32 [R, P * C]."""
        for layer in self._layers:
            x = layer(x)
        return x


def cut(x: Tensor, dimensions: int, is_normalized: bool) -> Tensor:
    """Returns the vectors of x, float32 [R, N], cut to so many numbers, unless these are 0, and then scaled to a length
    of 1 or not."""
    part = x[:, :dimensions or x.shape[1]].contiguous()
    return normalized(part) if is_normalized else part


def cut_each(x: Tensor, forms: Sequence[tuple[int, bool]]) -> list[Tensor]:
    """Returns each vector of x in a form of its own."""
    found: dict[int, Tensor] = {}
    for form in dict.fromkeys(forms):
        rows = [row for row, own in enumerate(forms) if own == form]
        found |= zip(rows, cut(x if len(rows) == len(x) else x[rows], *form), strict=True)
    return [found[row] for row in range(len(forms))]
