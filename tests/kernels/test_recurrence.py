"""The two ops of recurrent layers."""

import pytest
import torch
from torch import Tensor
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from penstock.kernels.causal_conv import causal_conv
from penstock.kernels.causal_conv import reference as conv_reference
from penstock.kernels.recurrence import recurrence, reference
from penstock.kernels.recurrence.heads import RecurrentHeads
from penstock.kernels.recurrent_state import StateRows
from tests.kernels.accuracy import DTYPES
from tests.kernels.compiled import poison, threads

NUM_STATES = 5
SHAPES = [(1, 1, 16, 16), (2, 4, 24, 20), (1, 3, 64, 128)]  # groups, heads, K, D


def rows_of(*sequences: tuple[int, int, int]) -> StateRows:
    """Slot, start and number of tokens of each."""
    return StateRows(*(torch.tensor(column, dtype=torch.int32) for column in zip(*sequences, strict=True)))


SEQUENCES = rows_of((3, 0, 7), (0, 12, 1), (4, 5, 37))
NUM_TOKENS = 45


def make_heads(shape, is_delta):
    groups, num_heads, key_dim, value_dim = shape
    generator = torch.Generator().manual_seed(1)
    rate, bias, skip = torch.rand(3, num_heads, generator=generator).unbind()
    if is_delta:
        return RecurrentHeads(groups, key_dim, value_dim, -rate, bias, is_delta=True)
    return RecurrentHeads(groups, key_dim, value_dim, -rate, bias, skip, min_step=0.05, max_step=2.0)


def inputs_of(heads, num_tokens, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)
    qkv, steps, gates = (torch.randn(num_tokens, width, generator=generator).to(dtype)
                         for width in (heads.width, heads.num_heads, heads.num_heads))
    matrices = torch.randn(NUM_STATES, heads.num_heads, heads.key_dim, heads.value_dim, generator=generator)
    return qkv, steps, gates if heads.is_delta else None, matrices / heads.key_dim**0.5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_delta", [False, True])
def test_values(is_delta, shape, dtype, kernel_set, monkeypatch):
    poison(monkeypatch)
    heads = make_heads(shape, is_delta)
    qkv, steps, gates, matrices = inputs_of(heads, NUM_TOKENS, dtype)
    matrices[3] = torch.nan                               # of a sequence that begins
    own = matrices.clone()
    expected = reference.recurrence(qkv, steps, gates, heads, matrices, SEQUENCES)
    out = recurrence(qkv, steps, gates, heads, own, SEQUENCES)
    assert out.dtype == dtype
    torch.testing.assert_close(out, expected, rtol=2e-5 if dtype == torch.float32 else 8e-3, atol=2e-5)
    torch.testing.assert_close(own, matrices, rtol=2e-5, atol=2e-5)


def test_as_transformers(kernel_set):
    heads = make_heads((2, 4, 16, 32), is_delta=True)
    qkv, steps, gates, matrices = inputs_of(heads, 9)
    q, k, v = (part.unflatten(1, (number, -1)) for part, number in zip(
        qkv.split([32, 32, 128], dim=1), (2, 2, 4), strict=True))
    decay = heads.rate * torch.nn.functional.softplus(steps + heads.bias)
    expected, state = torch_recurrent_gated_delta_rule(
        q[None], k[None], v[None], decay[None], gates.sigmoid()[None], output_final_state=True,
        use_qk_l2norm_in_kernel=True)
    out = recurrence(qkv, steps, gates, heads, matrices, rows_of((1, 0, 9)))
    torch.testing.assert_close(out, expected[0], rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(matrices[1], state[0], rtol=2e-5, atol=2e-5)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("is_delta", [False, True])
def test_a_sequence_has_the_same_bits_in_any_batch_and_in_any_chunks(is_delta, kernel_set):
    heads = make_heads((2, 4, 24, 20), is_delta)
    qkv, steps, gates, matrices = inputs_of(heads, NUM_TOKENS)
    together = matrices.clone()
    whole = recurrence(qkv, steps, gates, heads, together, SEQUENCES)

    def chunk(begin: int, end: int, slot: int, start: int) -> Tensor:
        part = (None if each is None else each[begin:end] for each in (qkv, steps, gates))
        return recurrence(*part, heads, matrices, rows_of((slot, start, end - begin)))

    with threads(2):
        apart = [chunk(0, 3, 3, 0), chunk(3, 7, 3, 3), chunk(7, 8, 0, 12),
                 chunk(8, 9, 4, 5), chunk(9, 43, 4, 6), chunk(43, 45, 4, 40)]
    assert torch.equal(torch.cat(apart), whole)
    assert torch.equal(matrices, together)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "channels", "has_bias"), [(4, 100, False), (2, 300, True), (7, 16, True)])
def test_convolutions(width, channels, has_bias, dtype, kernel_set, monkeypatch):
    poison(monkeypatch)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(NUM_TOKENS, channels, generator=generator).to(dtype)
    weight, bias = torch.randn(width, channels, generator=generator), torch.randn(channels, generator=generator)
    before = torch.randn(NUM_STATES, width - 1, channels, generator=generator).to(dtype)
    before[3] = torch.nan
    own, state = before.clone(), before.clone()
    expected = conv_reference.causal_conv(x, weight, bias if has_bias else None, state, SEQUENCES)
    out = causal_conv(x, weight, bias if has_bias else None, own, SEQUENCES)
    torch.testing.assert_close(out, expected, rtol=2e-5 if dtype == torch.float32 else 8e-3, atol=1e-5)
    assert torch.equal(own, state)
    pieces = [(0, 1, (3, 0, 1)), (1, 7, (3, 1, 6)), (7, 8, (0, 12, 1)), (8, 10, (4, 5, 2)), (10, 45, (4, 7, 35))]
    apart = [causal_conv(x[begin:end], weight, bias if has_bias else None, before, rows_of(row))
             for begin, end, row in pieces]
    assert torch.equal(torch.cat(apart), out)
    assert torch.equal(before, own)


def test_convolution_as_torch(kernel_set):
    x, weight = torch.randn(1, 6, 20), torch.randn(6, 4)
    expected = torch.nn.functional.silu(torch.nn.functional.conv1d(x, weight[:, None], padding=3, groups=6)[..., :20])
    out = causal_conv(x[0].T.contiguous(), weight.T.contiguous(), None, torch.zeros(1, 3, 6), rows_of((0, 0, 20)))
    torch.testing.assert_close(out.T, expected[0], rtol=2e-5, atol=1e-5)


def test_no_tokens(kernel_set):
    heads, none = make_heads((1, 1, 16, 16), is_delta=False), StateRows(*torch.zeros(3, 0, dtype=torch.int32))
    assert causal_conv(torch.empty(0, 8), torch.ones(4, 8), None, torch.ones(1, 3, 8), none).shape == (0, 8)
    assert recurrence(torch.empty(0, 48), torch.empty(0, 1), None, heads, torch.ones(1, 1, 16, 16), none).shape == (
        0, 1, 16)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("is_delta", [False, True])
def test_sequences_without_tokens_change_nothing(is_delta, kernel_set):
    """But that one at position 0 begins with zeros."""
    rows = rows_of((3, 0, 7), (1, 0, 0), (0, 12, 1), (2, 4, 0), (4, 5, 37))
    heads = make_heads((2, 4, 24, 20), is_delta)
    qkv, steps, gates, matrices = inputs_of(heads, NUM_TOKENS)
    expected, own = matrices.clone(), matrices.clone()
    expected[1] = 0
    whole = recurrence(qkv, steps, gates, heads, expected, SEQUENCES)
    assert torch.equal(recurrence(qkv, steps, gates, heads, own, rows), whole)
    assert torch.equal(own, expected)
    x, weight, inputs = qkv, torch.ones(4, heads.width), torch.ones(NUM_STATES, 3, heads.width)
    before, kept = inputs.clone(), inputs.clone()
    before[1] = 0
    whole = causal_conv(x, weight, None, before, SEQUENCES)
    assert torch.equal(causal_conv(x, weight, None, kept, rows), whole)
    assert torch.equal(kept, before)


def test_errors(kernel_set):
    heads = make_heads((2, 4, 16, 16), is_delta=True)
    qkv, steps, gates, matrices = inputs_of(heads, 3)
    rows = rows_of((0, 0, 3))
    with pytest.raises(ValueError, match=r"recurrence: gates are for the delta rule, which needs them"):
        recurrence(qkv, steps, None, heads, matrices, rows)
    with pytest.raises(ValueError, match=r"recurrence: qkv has shape \[3, 127\], expected \[3, 128\]"):
        recurrence(qkv[:, 1:].contiguous(), steps, gates, heads, matrices, rows)
    with pytest.raises(ValueError, match=r"causal_conv: weight \[1, 4\] reads 1 tokens, expected 2 to 16"):
        causal_conv(torch.ones(3, 4), torch.ones(1, 4), None, torch.ones(1, 0, 4), rows)
    with pytest.raises(ValueError, match=r"causal_conv: slots \[1\] has dtype torch.int64"):
        causal_conv(torch.ones(3, 4), torch.ones(4, 4), None, torch.ones(1, 3, 4),
                    StateRows(rows.slots.long(), rows.starts, rows.counts))
