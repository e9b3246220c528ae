"""Which heads a rank has, and where a checkpoint stores their rows of the linears q, k and v."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.shard.communication.own_inputs import OwnInputs, dealt_out, inputs_of_heads
from penstock.shard.layers.rows import merged
from penstock.shard.models.names import BlockNames
from penstock.shard.models.parts import AttentionConfig, Qkv
from penstock.shard.weights.format import LinearPart, Place


@dataclass(frozen=True, slots=True)
class OwnHeads:
    """The heads of one rank, and the KV heads that they read, as many of its heads each. More ranks than KV heads have
    some of them twice. Some ranks may have more than others."""

    heads: range
    kv_heads: range

    @classmethod
    def of(cls, attention: AttentionConfig, rank: int, world_size: int) -> "OwnHeads":
        num_kv_heads, share = attention.num_kv_heads, attention.share
        if world_size <= num_kv_heads:
            own = dealt_out(num_kv_heads, rank, world_size)
            return cls(range(own.start * share, own.stop * share), range(own.start, own.stop))
        holders = world_size // num_kv_heads
        kv_head, number = divmod(rank, holders)
        first, own = kv_head * share, dealt_out(share, number, holders)
        return cls(range(first + own.start, first + own.stop), range(kv_head, kv_head + 1))

    @classmethod
    def of_all(cls, attention: AttentionConfig, world_size: int) -> "list[OwnHeads]":
        """Returns those of every rank."""
        return [cls.of(attention, rank, world_size) for rank in range(world_size)]

    def outputs(self, attention: AttentionConfig, rank: int, world_size: int) -> OwnInputs:
        """Returns which inputs of the output projection are those of these heads, which are this rank's."""
        size = attention.output_dim
        part = slice(self.heads.start * size, self.heads.stop * size)
        return inputs_of_heads(part, attention.num_heads * size, rank, world_size)


def qkv_parts(
    attention: AttentionConfig, own: OwnHeads, names: BlockNames, in_features: int, place: Place
) -> list[tuple[str, LinearPart]]:
    """Returns a rank's parts of the linears q, k and v: the rows of its heads, q's first, then k's, then v's, then the
    gates'."""
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
