import pytest
import torch

from kernels.silu_mul import silu_mul
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS, assert_rounded_once


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 7, 64, 704])
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_values(num_tokens, width, dtype):
    gate_up = (3 * torch.randn(num_tokens, 2 * width, generator=torch.Generator().manual_seed(6))).to(dtype)
    gate, up = gate_up[:, :width].double(), gate_up[:, width:].double()
    out = silu_mul(gate_up)
    assert out.dtype == dtype
    assert out.is_contiguous()
    assert_rounded_once(out, gate / (1 + torch.exp(-gate)) * up)


def test_large_gates():
    gate_up = torch.tensor([[1e4, -1e4, 0.0, 2.0, 2.0, 2.0]], dtype=torch.bfloat16)
    assert silu_mul(gate_up).tolist() == [[torch.tensor(1e4, dtype=torch.bfloat16).item() * 2, 0.0, 0.0]]


def test_errors_name_the_shapes():
    with pytest.raises(ValueError, match=r"silu_mul: gate_up has shape \[3, 5\], its width must be even"):
        silu_mul(torch.ones(3, 5))
    with pytest.raises(ValueError, match=r"silu_mul: gate_up has shape \[6\], expected \[T, 2 \* I\]"):
        silu_mul(torch.ones(6))
