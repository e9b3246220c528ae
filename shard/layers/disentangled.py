"""Attention whose scores are of what two tokens are and of how far they are apart (He et al. 2021)."""

import torch
from torch import Tensor

from penstock.shard.layers.linear import ColumnParallel
from penstock.shard.layers.norm import read_norm
from penstock.shard.models.encoder_config import EncoderConfig, FarConfig
from penstock.shard.weights.rank_weights import RankWeights


class Disentangled:
    """Adds to q·k of two tokens the products of the one's q and the other's k with a key and a query of their distance.
    It computes one head of one text at a time, so that no bit depends on others."""

    def __init__(self, far: FarConfig, qkv: ColumnParallel, rows: Tensor, num_heads: int) -> None:
        """rows: [2 * span, C], of each class of distances; the linears that make q and k of tokens make theirs"""
        self._far = far
        queries, keys, _ = torch.chunk(qkv(rows), 3, dim=1)
        self._queries, self._keys = (part.double().view(len(rows), num_heads, -1).transpose(0, 1).contiguous()
                                     for part in (queries, keys))

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, counts: Tensor, scale: float) -> Tensor:
        """Attends as `full_attention` does: [T, H, D]."""
        out, lengths = torch.empty(q.shape, dtype=q.dtype, device=q.device), counts.tolist()
        parts = (torch.split(tensor, lengths) for tensor in (q, k, v, out))
        for own_q, own_k, own_v, own_out in zip(*parts, strict=True):
            place = self._classes(len(own_q)).to(q.device)
            for head in range(q.shape[1]):
                own_out[:, head] = self._attend(own_q[:, head], own_k[:, head], own_v[:, head], head, place, scale)
        return out

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, head: int, place: Tensor, scale: float) -> Tensor:
        """Attends in one head from q over k and v, [L, D]: float64. place: [L, L], the class of the distance from each
        key to each query"""
        q, k, v = (part.double().contiguous() for part in (q, k, v))
        scores = q @ k.t()
        scores += (q @ self._keys[head].t()).gather(1, place)
        scores += (k @ self._queries[head].t()).gather(1, place.t()).t()
        return (scores * scale).softmax(dim=1) @ v

    def _classes(self, length: int) -> Tensor:
        """Returns the class of the distance from each key to each query of a text: int64 [L, L]."""
        positions = torch.arange(length)
        return places(positions[:, None] - positions, self._far) + self._far.span


def read_disentangled(
    config: EncoderConfig, weights: RankWeights, qkv: ColumnParallel, num_heads: int
) -> Disentangled | None:
    """Makes a block's of the rows that all blocks share; None if the model has none."""
    far, names = config.far, config.names
    if far is None:
        return None
    rows = weights.whole(f"{names.distances}.weight", 2 * far.span, config.hidden_size)
    rows, _ = read_norm(config.norm, weights, names.distances_norm, config.hidden_size)(rows)
    return Disentangled(far, qkv, rows, num_heads)


def places(distances: Tensor, far: FarConfig) -> Tensor:
    """Returns the place of each distance, from -span to span - 1: near ones have one each, others ever more."""
    if far.buckets:
        middle, lengths = far.buckets // 2, distances.abs()
        share = torch.log(lengths.clamp(min=middle - 1) / middle) / torch.log(torch.tensor((far.longest - 1) / middle))
        logarithmic = torch.ceil(share * (middle - 1)) + middle
        distances = torch.where(lengths < middle, distances, (logarithmic * distances.sign()).long())
    return distances.clamp(-far.span, far.span - 1)
