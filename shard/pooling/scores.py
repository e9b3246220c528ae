"""Scores of a text by the logits of one or two tokens behind it."""

import torch
from torch import Tensor

from penstock.kernels.linear import linear
from penstock.kernels.softcap import softcap
from penstock.shard.models.config import ModelConfig
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.rank_weights import RankWeights


class TokenScores:
    """Scores by the logit of a token, less that of another one: its sigmoid is the first one's share of both."""

    def __init__(self, config: ModelConfig, weights: RankWeights, tokens: tuple[int, ...]) -> None:
        """Reads these tokens' rows of the head that the model continues texts with."""
        names, width = config.names, config.hidden_size
        is_tied = config.head.is_tied or names.head not in weights
        name = names.embedding if is_tied else names.head
        self._weight = weights.linears([
            (name, LinearPart(config.vocab_size, width, slice(token, token + 1), slice(0, width))) for token in tokens])
        self._bias = None
        if config.head.has_bias:
            self._bias = weights.whole(f"{names.head}.bias", config.vocab_size, dtype=torch.float32)[list(tokens)]
        self._head = config.head

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the scores [R, 1] of x, float32 [R, C]."""
        logits = linear(x, self._weight, self._bias, out_dtype=torch.float32) * self._head.multiplier
        if self._head.softcap:
            logits = softcap(logits, self._head.softcap)
        return logits[:, :1] - logits[:, 1:] if logits.shape[1] > 1 else logits
