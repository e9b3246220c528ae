"""Which heads of a recurrent layer a rank has, and where a checkpoint stores what belongs to them."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from penstock.kernels.recurrent_state import StateShape
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.rows import merged
from penstock.shard.models.parts import RecurrenceConfig, RecurrenceLayout
from penstock.shard.weights.format import LinearPart


@dataclass(frozen=True, slots=True)
class Piece:
    """Where the rows of some heads or groups lie: each has `size` of them, from these on."""

    linear: str
    outputs: int                         # of the linear
    starts: tuple[int, ...]
    size: int

    @property
    def rows(self) -> Iterator[slice]:
        return merged(self.starts, self.size)


@dataclass(frozen=True, slots=True)
class OwnRecurrence:
    """The heads of one rank, and the groups whose q and k they have. More ranks than groups have some of them twice."""

    form: RecurrenceConfig
    heads: range
    groups: range

    @classmethod
    def of(cls, form: RecurrenceConfig, group: Group) -> "OwnRecurrence":
        own = group.part(form.num_heads)
        heads = range(own.start, own.stop)
        return cls(form, heads, range(heads[0] // form.share, heads[-1] // form.share + 1))

    @property
    def values(self) -> slice:
        """Returns which of all heads' values are this rank's."""
        return slice(self.heads.start * self.form.value_dim, self.heads.stop * self.form.value_dim)

    @property
    def output_sizes(self) -> list[int]:
        """Returns how many numbers a token's [q; k; v], its gate, its steps and its weights are."""
        heads, form = len(self.heads), self.form
        qkv = 2 * len(self.groups) * form.key_dim + heads * form.value_dim
        return [qkv, heads * form.value_dim, heads, heads * form.is_delta]

    def state_shape(self, dtype: torch.dtype) -> StateShape:
        """Returns the shape of a sequence's state in one layer. dtype: of the activations"""
        form = self.form
        return StateShape(form.conv_width - 1, self.output_sizes[0],
                          (len(self.heads), form.key_dim, form.value_dim), dtype)

    def input_parts(self, layer: str, in_features: int) -> list[tuple[str, LinearPart]]:
        """Returns a rank's parts of the linears in front: the rows of q, k, v, the gate, the steps, the weights."""
        pieces = {RecurrenceLayout.APART: self._apart, RecurrenceLayout.BY_GROUP: self._by_group,
                  RecurrenceLayout.STACKED: self._stacked}[self.form.layout]()
        return [(f"{layer}.{piece.linear}", LinearPart(piece.outputs, in_features, rows, slice(0, in_features)))
                for piece in pieces for rows in piece.rows]

    def conv_channels(self) -> list[slice]:
        """Returns which channels of the convolution are those of q, k and v."""
        form = self.form
        keys, values = form.num_groups * form.key_dim, form.num_heads * form.value_dim
        q, k, v = (values + keys, values, 0) if form.layout is RecurrenceLayout.STACKED else (0, keys, 2 * keys)
        return [*self._keys(q), *self._keys(k), *merged(self._of_heads(v, form.value_dim), form.value_dim)]

    def _keys(self, first: int) -> Iterator[slice]:
        return merged(self._of_groups(first, self.form.key_dim), self.form.key_dim)

    def _of_heads(self, first: int, size: int) -> tuple[int, ...]:
        return tuple(first + head * size for head in self.heads)

    def _of_groups(self, first: int, size: int) -> tuple[int, ...]:
        return tuple(first + group * size for group in self.groups)

    def _apart(self) -> list[Piece]:
        form = self.form
        key, value = form.key_dim, form.value_dim
        keys, values = form.num_groups * key, form.num_heads * value
        outputs = 2 * keys + values
        return [Piece("in_proj_qkv", outputs, self._of_groups(0, key), key),
                Piece("in_proj_qkv", outputs, self._of_groups(keys, key), key),
                Piece("in_proj_qkv", outputs, self._of_heads(2 * keys, value), value),
                Piece("in_proj_z", values, self._of_heads(0, value), value),
                Piece("in_proj_a", form.num_heads, tuple(self.heads), 1),
                Piece("in_proj_b", form.num_heads, tuple(self.heads), 1)]

    def _by_group(self) -> list[Piece]:
        form, share = self.form, self.form.share
        key, value = form.key_dim, form.value_dim
        width = 2 * key + 2 * share * value  # of a group

        def of_heads(first: int, width: int, size: int) -> tuple[int, ...]:
            return tuple(head // share * width + first + head % share * size for head in self.heads)

        outputs, pairs = form.num_groups * width, 2 * form.num_heads
        return [Piece("in_proj_qkvz", outputs, self._of_groups(0, width), key),
                Piece("in_proj_qkvz", outputs, self._of_groups(key, width), key),
                Piece("in_proj_qkvz", outputs, of_heads(2 * key, width, value), value),
                Piece("in_proj_qkvz", outputs, of_heads(2 * key + share * value, width, value), value),
                Piece("in_proj_ba", pairs, of_heads(share, 2 * share, 1), 1),
                Piece("in_proj_ba", pairs, of_heads(0, 2 * share, 1), 1)]

    def _stacked(self) -> list[Piece]:
        form = self.form
        key, value = form.key_dim, form.value_dim
        keys, values = form.num_groups * key, form.num_heads * value
        outputs = 2 * values + 2 * keys + form.num_heads
        return [Piece("in_proj", outputs, self._of_groups(2 * values + keys, key), key),
                Piece("in_proj", outputs, self._of_groups(2 * values, key), key),
                Piece("in_proj", outputs, self._of_heads(values, value), value),
                Piece("in_proj", outputs, self._of_heads(0, value), value),
                Piece("in_proj", outputs, self._of_heads(2 * values + 2 * keys, 1), 1)]
