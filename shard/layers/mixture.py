"""A mixture of experts (Shazeer et al. 2017), each of which is split over the ranks by its inner width."""

import torch
from torch import Tensor

from penstock.kernels.experts import Experts, experts
from penstock.kernels.linear import PackedWeight, linear
from penstock.kernels.lora import AdapterRows
from penstock.kernels.route import route
from penstock.kernels.route.form import RouteForm, Scoring
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.names import BlockNames
from penstock.shard.models.parts import ExpertsConfig, ExpertsLayout
from penstock.shard.weights.format import ITSELF, LinearPart, Place
from penstock.shard.weights.rank_weights import RankWeights

ONE = RouteForm(1, Scoring.SIGMOID)


class Mixture:
    """Transforms each token by the experts that the router chooses for it, and by the shared one, if there is one."""

    def __init__(self, config: ModelConfig, mixture: ExpertsConfig, weights: RankWeights, names: BlockNames) -> None:
        hidden, count = config.hidden_size, mixture.num_experts
        self.group = weights.group
        self.route_form = mixture.route
        self.router = weights.plain(names.router, count, hidden)
        self.router_bias = weights.whole(f"{names.router}.bias", count) if mixture.has_bias else None
        self.choice_bias = None
        if mixture.has_choice_bias:
            shape = weights.shape(names.choice_bias) or (count,)  # ERNIE's has an axis more
            self.choice_bias = weights.whole(names.choice_bias, *shape, dtype=torch.float32).view(-1)
        each = [_read_expert(weights, mixture, names, hidden, number) for number in range(count)]
        gate_up, down = zip(*each, strict=True)
        self.has_shared = False              # as expert 0, before those of the router
        self.shared_gate: PackedWeight | None = None
        if mixture.shared_size:
            size = mixture.shared_size
            shared = (weights.own_halves(names.shared_gate, size, hidden) if names.shared_gate == names.shared_up
                      else weights.own_outputs({names.shared_gate: size, names.shared_up: size}, hidden))
            gate_up = weights.linears(shared), *gate_up
            down = _row_parallel(weights, names.shared_down, size, hidden, ITSELF), *down
            self.has_shared = True
        if mixture.is_shared_gated:
            self.shared_gate = weights.plain(names.shared_weight, 1, hidden)
        gate_up_bias: Tensor | None = None
        self.down_bias: Tensor | None = None
        if mixture.has_bias:
            gate_up_bias, self.down_bias = _biases(weights, mixture, names, hidden)
        self.experts = Experts(gate_up, down, mixture.activation, gate_up_bias)

    def __call__(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Returns the mixture's output for each token of x [T, C], [T, C]. No adapter has weights for a mixture."""
        logits = linear(x, self.router, self.router_bias, torch.float32)
        ids, weights = route(logits, self.choice_bias, self.route_form)
        if self.has_shared:
            ids, weights = self._with_shared(x, ids, weights)
        if self.down_bias is None:
            return self.join(experts(x, ids, weights, self.experts, self.is_partial), x.dtype)
        total = self.join(experts(x, ids, weights, self.experts, partial=True), torch.float32)
        for chosen, weight in zip(ids.unbind(1), weights.unbind(1), strict=True):  # in one order
            total = total + self.down_bias[chosen] * weight[:, None]
        return total.to(x.dtype)

    @property
    def is_partial(self) -> bool:
        """Tells whether a rank's sums are only a part of the whole, which `join` makes of them."""
        return self.group.world_size > 1

    def join(self, out: Tensor, dtype: torch.dtype) -> Tensor:
        """Completes the sums that the kernels computed of this rank's slices of the experts, [T, C]. `out` may be
        overwritten."""
        return self.group.sum(out).to(dtype) if self.is_partial else out

    def _with_shared(self, x: Tensor, ids: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Puts the shared expert first, as number 0."""
        first = torch.zeros_like(ids[:, :1])
        own = torch.ones_like(weights[:, :1])
        if self.shared_gate is not None:
            own = sigmoid(linear(x, self.shared_gate, out_dtype=torch.float32))
        return torch.cat([first, ids + 1], dim=1), torch.cat([own, weights], dim=1)


def sigmoid(logits: Tensor) -> Tensor:
    """Returns 1 / (1 + e^-x) of logits [T, 1], as the router of one expert has it."""
    _, weights = route(logits, None, ONE)
    return weights


def _read_expert(
    weights: RankWeights, mixture: ExpertsConfig, names: BlockNames, hidden: int, number: int
) -> tuple[PackedWeight, PackedWeight]:
    """Reads a rank's part of [gate; up] and of down of one expert."""
    inner, columns = mixture.inner_size, slice(0, hidden)
    gate, up, down = (name.format(expert=number) for name in (names.expert_gate, names.expert_up, names.expert_down))
    if mixture.layout is ExpertsLayout.APART:
        parts, place = weights.own_outputs({gate: inner, up: inner}, hidden), ITSELF
    else:
        is_alternating = mixture.layout.is_alternating
        place = Place(number, mixture.num_experts, mixture.layout is ExpertsLayout.TRANSPOSED, is_alternating)
        parts = weights.own_halves(gate, inner, hidden, place)
        if is_alternating:
            own = weights.own_inner(inner).part
            parts = [(gate, LinearPart(2 * inner, hidden, slice(2 * own.start + half, 2 * own.stop, 2), columns, place))
                     for half in range(2)]
    return weights.linears(parts), _row_parallel(weights, down, inner, hidden, place)


def _biases(weights: RankWeights, mixture: ExpertsConfig, names: BlockNames, hidden: int) -> tuple[Tensor, Tensor]:
    """Reads a rank's biases of all experts' [gate; up], whose rows alternate, and those of down, float32."""
    count, inner = mixture.num_experts, mixture.inner_size
    own = weights.own_inner(inner).part
    stored = weights.whole(f"{names.expert_gate}_bias", count, 2 * inner)
    gate_up = torch.cat([stored[:, half::2][:, own] for half in range(2)], dim=1).contiguous()
    return gate_up, weights.whole(f"{names.expert_down}_bias", count, hidden, dtype=torch.float32)


def _row_parallel(weights: RankWeights, name: str, inner: int, hidden: int, place: Place) -> PackedWeight:
    return weights.row_parallel(name, hidden, inner, weights.own_inner(inner), place)
