"""The layers in attention's place that carry a state from token to token: the gated delta net (Yang et al. 2024), and
Mamba-2 (Dao and Gu 2024). They are split over the ranks by heads."""

import torch
from torch import Tensor

from penstock.kernels.activation import Activation, activate_gate
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.causal_conv import causal_conv
from penstock.kernels.recurrence import recurrence
from penstock.kernels.recurrence.heads import RecurrentHeads
from penstock.kernels.recurrent_state import RecurrentState
from penstock.kernels.rms_norm import rms_norm
from penstock.shard.communication.own_inputs import inputs_of_heads
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.layers.recurrence_parts import OwnRecurrence
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.names import BlockNames
from penstock.shard.weights.rank_weights import RankWeights


class Recurrence:
    """Lets each token change a matrix for each head, and read it."""

    def __init__(self, config: ModelConfig, weights: RankWeights, names: BlockNames) -> None:
        assert config.recurrence is not None
        form, name = config.recurrence, names.recurrence
        own = OwnRecurrence.of(form, weights.group)
        self._group = weights.group
        self._input = ColumnParallel(weights, own.input_parts(name, config.hidden_size), has_bias=False)
        self._sizes = own.output_sizes
        self._conv_weight, self._conv_bias = _read_convolution(weights, own, name)
        self._heads = _read_heads(weights, own, name)
        width = form.value_dim if form.is_delta else form.num_heads * form.value_dim
        self._norm_weight = weights.whole(f"{name}.norm.weight", width)
        self._is_normed_first = form.is_delta
        self._eps = config.norm.eps
        self._own_values = own.values
        inputs = form.num_heads * form.value_dim
        self._output = RowParallel(
            weights, f"{name}.out_proj", inputs, config.hidden_size, False, config.place,
            inputs_of_heads(own.values, inputs, weights.group.rank, weights.group.world_size))

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: RecurrentState) -> Tensor:
        """Returns the output for each token of x [T, C], which reads its sequence's state, [T, C]."""
        qkv, gate, steps, weights = torch.split(self._input(x), self._sizes, dim=1)
        rows = metadata.state_rows
        mixed = causal_conv(qkv.contiguous(), self._conv_weight, self._conv_bias, cache.inputs, rows)
        gates = weights.contiguous() if self._heads.is_delta else None
        read = recurrence(mixed, steps.contiguous(), gates, self._heads, cache.matrices, rows)
        return self._output(self._of_heads(read, gate) if self._is_normed_first else self._of_all(read, gate))

    def _of_heads(self, read: Tensor, gate: Tensor) -> Tensor:
        """Normalises each head by itself, then lets the gate through."""
        rows = read.view(-1, read.shape[2])
        normed, _ = rms_norm(rows, self._norm_weight, self._eps, None)
        gates = gate.reshape(rows.shape)
        return activate_gate(torch.cat([gates, normed], dim=1), Activation.SILU).view(len(read), -1)

    def _of_all(self, read: Tensor, gate: Tensor) -> Tensor:
        """Lets the gate through, then normalises all heads of a token as one row; they come from all ranks."""
        gated = activate_gate(torch.cat([gate, read.flatten(1)], dim=1), Activation.SILU)
        rows = gated if self._group.world_size == 1 else (
            self._group.all_gather(gated).transpose(0, 1).flatten(1).contiguous())
        normed, _ = rms_norm(rows, self._norm_weight, self._eps, None)
        return normed[:, self._own_values].contiguous()


def _read_convolution(weights: RankWeights, own: OwnRecurrence, name: str) -> tuple[Tensor, Tensor | None]:
    """Reads a rank's part of the convolution's weight, [W, C], and of its bias, [C], if it has one; both float32."""
    form, channels = own.form, own.conv_channels()
    total = 2 * form.num_groups * form.key_dim + form.num_heads * form.value_dim
    weight = weights.whole(f"{name}.conv1d.weight", total, 1, form.conv_width, dtype=torch.float32)[:, 0]
    bias = weights.whole(f"{name}.conv1d.bias", total, dtype=torch.float32) if form.conv_bias else None
    return (torch.cat([weight[rows] for rows in channels]).T.contiguous(),
            None if bias is None else torch.cat([bias[rows] for rows in channels]))


def _read_heads(weights: RankWeights, own: OwnRecurrence, name: str) -> RecurrentHeads:
    """Reads how a rank's heads carry their state."""
    form, part = own.form, slice(own.heads.start, own.heads.stop)

    def read(vector: str) -> Tensor:
        return weights.whole(f"{name}.{vector}", form.num_heads, dtype=torch.float32)[part].contiguous()

    return RecurrentHeads(
        len(own.groups), form.key_dim, form.value_dim, rate=-read("A_log").exp(), bias=read("dt_bias"),
        skip=None if form.is_delta else read("D"), is_delta=form.is_delta, min_step=form.steps[0],
        max_step=form.steps[1])
