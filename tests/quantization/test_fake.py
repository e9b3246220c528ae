"""Training through the rounding leaves less error behind it than rounding afterwards."""

import torch
from torch import nn

from penstock.quantization.fake import FakeQuantisedLinear, replace_linears
from penstock.shard.weights.rounding import round_to_nearest


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Sequential(nn.Linear(64, 8)))


def test_the_gradient_goes_straight_through() -> None:
    linear = nn.Linear(32, 4)
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    FakeQuantisedLinear(linear).forward(x).sum().backward()
    assert linear.weight.grad is not None
    assert torch.allclose(linear.weight.grad, x.sum(0).expand(4, 32))


def test_it_computes_what_the_rounded_weights_do() -> None:
    linear = nn.Linear(64, 8)
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(2))
    rounded = round_to_nearest(linear.weight.detach(), 4, 32, symmetric=True).dequantise()
    assert torch.allclose(FakeQuantisedLinear(linear)(x), nn.functional.linear(x, rounded, linear.bias), atol=1e-6)


def test_training_makes_up_for_the_rounding() -> None:
    plain, learned = network(), network()
    replace_linears(learned)
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(3))
    wanted = plain(x).detach()

    def loss() -> torch.Tensor:
        return (learned(x) - wanted).square().mean()

    before = loss().item()
    optimiser = torch.optim.Adam(learned.parameters(), lr=1e-4)
    for _ in range(300):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
    assert loss().item() < 0.7 * before
