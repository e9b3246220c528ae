"""Which heads a rank has, and where a checkpoint stores their rows of the linears q, k and v."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.shard.communication.distributed import Group
from penstock.shard.layers.rows import merged
from penstock.shard.models.names import BlockNames
from penstock.shard.models.parts import AttentionConfig, Qkv
from penstock.shard.weights.format import LinearPart, Place


@dataclass(frozen=True, slots=True)
class OwnHeads:
    """The heads of one rank, and the KV heads that they read. More ranks than KV heads have some of them twice."""

    heads: range
    kv_heads: range

    @classmethod
    def of(cls, attention: AttentionConfig, group: Group) -> "OwnHeads":
        own = group.part(attention.num_heads)
        heads = range(own.start, own.stop)
        return cls(heads, range(heads[0] // attention.share, heads[-1] // attention.share + 1))


def qkv_parts(
    attention: AttentionConfig, own: OwnHeads, names: BlockNames, in_features: int, place: Place
) -> list[tuple[str, LinearPart]]:
    """Returns what a rank reads of the linears q, k and v: the rows of its heads, q's first, then k's, then v's,
    then the gates'."""
    heads, kv_heads = attention.num_heads, attention.num_kv_heads
    if attention.qkv is Qkv.APART:
        stored: list[tuple[str, int, Iterable[int]]] = [
            (names.q, heads, own.heads), (names.k, kv_heads, own.kv_heads), (names.v, kv_heads, own.kv_heads)]
    elif attention.qkv is Qkv.GATED:
        stored = [(names.q, 2 * heads, (2 * head for head in own.heads)), (names.k, kv_heads, own.kv_heads),
                  (names.v, kv_heads, own.kv_heads), (names.q, 2 * heads, (2 * head + 1 for head in own.heads))]
    else:
        place_q, place_k, place_v = _places(attention)
        all_heads = heads + 2 * kv_heads
        stored = [(names.qkv, all_heads, map(place, numbers)) for place, numbers in (
            (place_q, own.heads), (place_k, own.kv_heads), (place_v, own.kv_heads))]
    size = attention.head_dim
    return [
        (name, LinearPart(count * size, in_features, rows, slice(0, in_features), place))
        for name, count, places in stored for rows in merged((head * size for head in places), size)]


def _places(attention: AttentionConfig) -> tuple[Callable[[int], int], ...]:
    """Returns where the heads of q, of k and of v are in the linear that has all three, counted in heads."""
    heads, kv_heads, share = attention.num_heads, attention.num_kv_heads, attention.share
    if attention.qkv is Qkv.STACKED:
        return (lambda head: head), (lambda head: heads + head), (lambda head: heads + kv_heads + head)
    if attention.qkv is Qkv.BY_HEAD:
        return (lambda head: 3 * head), (lambda head: 3 * head + 1), (lambda head: 3 * head + 2)
    width = share + 2
    return ((lambda head: head // share * width + head % share), (lambda head: head * width + share),
            (lambda head: head * width + share + 1))
