"""Terms of attention's scores by the distance of two tokens (Raffel et al. 2020): a number of each head for each class
of distances."""

import math

import torch
from torch import Tensor

from penstock.shard.layers.heads import OwnHeads
from penstock.shard.models.encoder_config import EncoderConfig
from penstock.shard.weights.rank_weights import RankWeights

FARTHEST = 128
"""The distance from which on all have one class."""


def read_distances(config: EncoderConfig, weights: RankWeights) -> Tensor | None:
    """Reads the numbers of this rank's heads: float32 [H, 2 * FARTHEST + 1], from a key so many tokens before a query
    to one as many behind it. Returns None if the model has none."""
    if not config.num_distances:
        return None
    heads = OwnHeads.of(config.attention, weights.group.rank, weights.group.world_size).heads
    stored = weights.whole(f"{config.names.distances}.weight", config.num_distances, config.attention.num_heads)
    distances = torch.arange(-FARTHEST, FARTHEST + 1)
    rows = stored[classes(distances, config.num_distances).to(stored.device)]
    return rows[:, heads.start:heads.stop].t().float().contiguous()


def classes(distances: Tensor, number: int) -> Tensor:
    """Returns the class of each distance, int64. Half of them are of keys behind the query; in each half the first have
    one distance each, the others ever more."""
    number //= 2
    single = number // 2
    lengths = distances.abs()
    share = torch.log(lengths.float().clamp(min=1) / single) / math.log(FARTHEST / single)
    far = (single + (share * (number - single)).long()).clamp(max=number - 1)
    return torch.where(lengths < single, lengths, far) + number * (distances > 0)
