"""Which of our ops are found to compute what modules of transformers do."""

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNormGated

from penstock.kernels.activation import Activation
from penstock.shard.fallback.equal import gate_of, norm_of
from penstock.shard.models.parts import NormConfig


@pytest.mark.parametrize(("module", "expected"), [
    (LlamaRMSNorm(48, eps=1e-5), NormConfig(1e-5)),
    (GemmaRMSNorm(48, eps=1e-6), NormConfig(1e-6, offset=1.0)),
    (nn.LayerNorm(48, eps=1e-3), NormConfig(1e-3, is_centred=True, has_bias=True)),
    (nn.LayerNorm(48, eps=1e-3, bias=False), NormConfig(1e-3, is_centred=True)),
    (Qwen3NextRMSNormGated(48, eps=1e-6), None),
    (nn.BatchNorm1d(48), None),
    (nn.Linear(48, 48), None)])
def test_norms_are_found(module: nn.Module, expected: NormConfig | None) -> None:
    assert norm_of(module.eval()) == expected


@pytest.mark.parametrize(("activation", "expected"), [
    ("silu", Activation.SILU), ("gelu", Activation.GELU), ("gelu_pytorch_tanh", Activation.GELU_TANH),
    ("relu2", Activation.RELU_SQUARED), ("mish", None)])
def test_gated_networks_are_found(activation: str, expected: Activation | None) -> None:
    assert activation in ACT2FN
    assert gate_of(LlamaMLP(LlamaConfig(hidden_size=32, intermediate_size=64, hidden_act=activation))) == expected


def test_a_network_that_does_more_is_not_ours() -> None:
    class Doubled(LlamaMLP):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    assert gate_of(Doubled(LlamaConfig(hidden_size=32, intermediate_size=64))) is None
