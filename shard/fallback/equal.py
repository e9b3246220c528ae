"""Finds which of our ops computes what a module of transformers does, by computing both on random numbers."""

import copy
import inspect
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from penstock.kernels import dispatch
from penstock.kernels.activation import Activation, activate_gate
from penstock.shard.layers.norm import make_norm
from penstock.shard.models.parts import NormConfig

NUM_ROWS = 5
WIDTH = 24
TOLERANCE = 1e-5                         # of float32 numbers of about 1
EPS_NAMES = ("variance_epsilon", "eps", "epsilon", "norm_eps")
GATED_LINEARS = ("gate_proj", "up_proj", "down_proj")
GATES = [kind for kind in Activation if kind is not Activation.CLAMPED_SWIGLU]


def norm_of(module: nn.Module) -> NormConfig | None:
    """Returns the settings with which our norm computes the same as a module; None if none are found."""
    weights = dict(module.named_parameters())
    if any(True for _ in module.children()) or "weight" not in weights or not weights.keys() <= {"weight", "bias"}:
        return None
    eps = next((getattr(module, name) for name in EPS_NAMES if isinstance(getattr(module, name, None), float)), None)
    weight, bias = weights["weight"], weights.get("bias")
    if eps is None or weight.dim() != 1 or _num_inputs(module) != 1 or _may_have_more(module):
        return None
    generator = torch.Generator().manual_seed(0)
    sample = {name: torch.randn(len(weight), generator=generator) for name in weights}
    x = torch.randn(NUM_ROWS, len(weight), generator=generator) * torch.logspace(-3, 1, NUM_ROWS)[:, None]
    theirs = _computed(_with_parameters(module, sample), x)
    for is_centred in (False, True):
        for offset in (0.0, 1.0):
            config = NormConfig(eps, is_centred, has_bias=bias is not None, offset=offset)
            if bias is not None and not is_centred:
                continue
            own_weight, own_bias = (
                sample[name].to(dispatch.device())[None] if name in sample else None for name in ("weight", "bias"))
            assert own_weight is not None, "a norm has a weight"
            own = make_norm(config, own_weight, own_bias)
            if _are_close(theirs, own(x.to(dispatch.device()))[0].cpu()):
                return config
    return None


def gate_of(module: nn.Module) -> Activation | None:
    """Returns the activation with which our gated feed-forward network computes what a module of three linears does;
    None if there is none."""
    children = dict(module.named_children())
    linears = {name: children.get(name) for name in GATED_LINEARS}
    if not all(type(linear) is nn.Linear for linear in linears.values()) or list(module.parameters(recurse=False)):
        return None
    others = [child for name, child in children.items() if name not in linears]
    if any(True for child in others for _ in child.parameters()) or _num_inputs(module) != 1:
        return None
    generator = torch.Generator().manual_seed(0)
    small = {name: _random_linear(linear, generator) for name, linear in linears.items() if linear is not None}
    clone = copy.copy(module)
    clone._modules = dict(module._modules) | small
    x = torch.randn(NUM_ROWS, WIDTH, generator=generator) * 2
    theirs = _computed(clone, x)

    def ours(activation: Activation) -> Tensor:
        inner = torch.cat([small["gate_proj"](x), small["up_proj"](x)], dim=1).to(dispatch.device())
        out: Tensor = small["down_proj"](activate_gate(inner, activation).cpu())
        return out

    return next((kind for kind in GATES if _are_close(theirs, ours(kind))), None)


def _random_linear(like: nn.Module, generator: torch.Generator) -> nn.Linear:
    assert isinstance(like, nn.Linear)
    linear = nn.Linear(WIDTH, WIDTH, bias=like.bias is not None)
    for parameter in linear.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / WIDTH**0.5
    return linear


def _with_parameters(module: nn.Module, values: Mapping[str, Tensor]) -> nn.Module:
    clone = copy.copy(module)
    clone._parameters = module._parameters | {
        name: nn.Parameter(value, requires_grad=False) for name, value in values.items()}
    return clone


def _num_inputs(module: nn.Module) -> int:
    """Returns how many inputs the module's forward cannot do without."""
    return sum(parameter.default is inspect.Parameter.empty for parameter in _positional(module))


def _may_have_more(module: nn.Module) -> bool:
    """Tells whether there are inputs that the module's forward can do without, such as a gate."""
    return len(_positional(module)) > _num_inputs(module)


def _positional(module: nn.Module) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter for parameter in inspect.signature(module.forward).parameters.values() if parameter.kind in kinds]


def _computed(module: nn.Module, x: Tensor) -> Tensor | None:
    """Returns the output of a module of the same form for x; None where it computes with anything else."""
    try:
        out = module(x)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError):
        return None
    return out if isinstance(out, Tensor) and out.shape == x.shape else None


def _are_close(theirs: Tensor | None, ours: Tensor) -> bool:
    return theirs is not None and bool((theirs - ours).abs().max() <= TOLERANCE * (1 + theirs.abs().max()))
