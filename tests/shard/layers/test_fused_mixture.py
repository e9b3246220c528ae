"""A fused mixture of experts: the bits of the layer written op by op."""

from pathlib import Path

import pytest
import torch

from penstock.shard.communication.distributed import Group
from penstock.shard.layers.fused import FusedMixture, fuse_mixture, fuse_mlp
from tests import kernel_sets
from tests.kernels.accuracy import DTYPES
from tests.shard.layers.halves import (
    MIXTURE,
    SHAPE,
    SHARED,
    WIDTH,
    OneOfTwo,
    compare_feed_forward,
    load,
    random,
    set_all,
)
from tests.tiny_models import make_tiny

MODELS = {"mixture": MIXTURE, "shared gate": SHARED}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: make_tiny(folder / name, **SHAPE, **keys) for name, keys in MODELS.items()}


@pytest.fixture(params=kernel_sets.CPU_SETS, autouse=True)
def cpu_kernels(request, monkeypatch):
    """Every instruction path of the processor's compiled kernels."""
    kernel_sets.use(monkeypatch, request.param)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [Group(), OneOfTwo()], ids=["whole", "partial"])
@pytest.mark.parametrize("num_tokens", [0, 1, 19])
def test_mixture_has_the_bits_of_its_ops(models, monkeypatch, model, dtype, group, num_tokens):
    _, layer = load(monkeypatch, models[model], dtype, group)
    fast = fuse_mixture(layer)
    assert type(fast) is FusedMixture
    compare_feed_forward(monkeypatch, layer, fast, dtype, group, num_tokens)


def test_a_mixture_with_other_parts_has_the_bits_of_its_ops(models, monkeypatch):
    """A shared expert of weight 1, and biases of the router and of the choice."""
    _, layer = load(monkeypatch, models["shared gate"])
    set_all(monkeypatch, layer.layer, {"shared_gate": None, "router_bias": random(6), "choice_bias": random(6, seed=1)})
    compare_feed_forward(monkeypatch, layer, fuse_mixture(layer), torch.float32, Group(), 19)


def test_which_mixtures_are_not_fused(models, monkeypatch):
    """Those with biases behind the experts, and of weights that the compiled kernels do not read."""

    class OtherWeight:
        compiled = None

    _, mixture = load(monkeypatch, models["mixture"])
    assert fuse_mlp(mixture) is None
    for values in ({"down_bias": random(6, WIDTH)}, {"router": OtherWeight()}):
        with monkeypatch.context() as patch:
            set_all(patch, mixture.layer, values)
            assert fuse_mixture(mixture) is None
