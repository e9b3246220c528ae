import pytest
import torch

from penstock.kernels import dispatch
from penstock.kernels.activation import Activation
from penstock.kernels.activation import reference as activation
from penstock.kernels.experts import Experts, experts
from penstock.kernels.linear import linear, linear_apart, pack
from penstock.kernels.quantised_linear import pack_coded
from penstock.kernels.quantised_linear.activations import Activations
from tests.kernel_sets import few
from tests.kernels.accuracy import DTYPES
from tests.kernels.coded import make
from tests.kernels.compiled import assert_near, poison, threads

pytestmark = pytest.mark.usefixtures("bit_contract")
WIDTH, OUTPUTS = 40, 72
INNER = (48, 16, 16, 16, 16)             # one is as wide as three of the others


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / shape[-1] ** 0.5


def choices(num_tokens, num_experts=5, top_k=3):
    """Ascending ids, and weights; the last expert but one is never chosen."""
    generator = torch.Generator().manual_seed(num_tokens)
    order = torch.rand(num_tokens, num_experts, generator=generator)
    order[:, -2] = 2
    return order.argsort(dim=1)[:, :top_k].sort(dim=1).values.int(), torch.rand(num_tokens, top_k, generator=generator)


def weights_of(dtype, inner=INNER):
    return [(randn(2 * each, WIDTH, seed=each + number).to(dtype), randn(OUTPUTS, each, seed=2 * number).to(dtype))
            for number, each in enumerate(inner)]


def packed(matrices, segments=8, chosen=Activation.SILU, bias=None):
    gates, downs = zip(*matrices, strict=True)
    return Experts([pack(each) for each in gates], [pack(each, segments) for each in downs], chosen, bias)


def exact(x, ids, weights, matrices, chosen, bias):
    out = torch.zeros(len(x), OUTPUTS, dtype=torch.float64)
    for token in range(len(x)):
        for number, weight in zip(ids[token].tolist(), weights[token], strict=True):
            gate_up, down = matrices[number]
            inner = x[token].double() @ gate_up.double().T
            inner = (inner if bias is None else inner + bias[number]).to(x.dtype)
            out[token] += weight * (activation.activate_gate(inner[None], chosen)[0].double() @ down.double().T)
    return out


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chosen", [Activation.SILU, Activation.CLAMPED_SWIGLU])
def test_values(dtype, chosen, kernel_set, monkeypatch):
    inner = INNER if chosen is Activation.SILU else (24,) * 5
    matrices = weights_of(dtype, inner)
    bias = None if chosen is Activation.SILU else randn(5, 48).to(dtype)
    layer = packed(matrices, chosen=chosen, bias=bias)
    poison(monkeypatch)
    for num_tokens in (1, 2, 19, 70):
        x = randn(num_tokens, WIDTH, seed=7).to(dtype)
        ids, weights = choices(num_tokens)
        out = experts(x, ids, weights, layer)
        assert out.dtype == dtype
        expected = exact(x, ids, weights, matrices, chosen, bias)
        assert (out.double() - expected).norm() <= {torch.float32: 1e-6}.get(dtype, 6e-3) * expected.norm()


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_has_the_same_bits_in_any_batch_and_with_any_threads(dtype, kernel_set):
    layer = packed(weights_of(dtype))
    most, some = few(kernel_set, 300, 20), few(kernel_set, 40, 3)
    x, (ids, weights) = randn(most, WIDTH, seed=2).to(dtype), choices(most)
    alone = torch.cat([experts(x[t:t + 1], ids[t:t + 1], weights[t:t + 1], layer) for t in range(some)])
    for count in range(1, few(kernel_set, 4, 2)):
        with threads(count):
            assert torch.equal(experts(x, ids, weights, layer)[:some], alone)
            assert torch.equal(experts(x[:some], ids[:some], weights[:some], layer), alone)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("is_deterministic", [False, True])
def test_tiles_of_one_expert_and_tokens_in_parts(is_deterministic, gpu_kernels, monkeypatch):
    """All tokens have one expert, more than a tile has rows; another has none."""
    from penstock.kernels.experts import gpu

    monkeypatch.setattr(dispatch._wishes, "is_deterministic", is_deterministic)
    matrices = weights_of(torch.float32, (16, 24, 16))
    x, weights = randn(70, WIDTH, seed=7), choices(70)[1][:, :2].contiguous()
    ids = torch.tensor([[0, 1], [0, 1], [0, 1]], dtype=torch.int32).repeat(24, 1)[:70].contiguous()
    layer = packed(matrices)
    out = experts(x, ids, weights, layer)
    expected = exact(x, ids, weights, matrices, Activation.SILU, None)
    assert (out.double() - expected).norm() <= 1e-6 * expected.norm()
    monkeypatch.setattr(gpu, "SUMS", 30 * OUTPUTS * 2 * (8 if is_deterministic else 1))
    assert torch.equal(experts(x, ids, weights, layer), out)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_ranks_have_the_bits_of_one(world_size, dtype, kernel_set):
    """Each has a slice of every expert; their sums meet in the tree."""
    matrices = weights_of(dtype)
    x, (ids, weights) = randn(9, WIDTH, seed=2).to(dtype), choices(9)
    whole = experts(x, ids, weights, packed(matrices), partial=True)
    sums = []
    for rank in range(world_size):
        own = [(torch.cat([half.chunk(world_size)[rank] for half in gate_up.chunk(2)]),
                down.chunk(world_size, dim=1)[rank].contiguous()) for gate_up, down in matrices]
        sums.append(experts(x, ids, weights, packed(own, 8 // world_size), partial=True))
    while len(sums) > 1:
        sums = [first + second for first, second in zip(sums[::2], sums[1::2], strict=True)]
    assert torch.equal(sums[0], whole)


@pytest.mark.parametrize("name", ["q4_0", "w8_channel"])
@pytest.mark.parametrize("activations", Activations)
def test_coded_weights(name, activations, cpu_kernels):
    """The bits of the ops one after the other."""
    gate_up = [pack_coded(make(name, 64, 64), 1, activations, torch.bfloat16) for _ in range(3)]
    down = [pack_coded(make(name, 72, 32), 4, activations, torch.bfloat16) for _ in range(3)]
    x, (ids, weights) = randn(20, 64).bfloat16(), choices(20, 3, 2)
    layer = Experts(gate_up, down, Activation.SILU)
    out = experts(x, ids, weights, layer, partial=True)
    assert_near(out, unfused(x, ids, weights, layer).double())


def unfused(x, ids, weights, layer):
    from penstock.kernels.experts import reference

    return reference.experts(x, ids, weights, layer, torch.float32)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segments", [1, 2, 8])
def test_sums_apart_are_those_of_the_tree(dtype, segments, kernel_set):
    for rows in (1, 7, 50):
        for outputs in (5, 64, 130):
            x, weight = randn(rows, 48).to(dtype), pack(randn(outputs, 48, seed=1).to(dtype), segments)
            sums = linear_apart(x, weight)
            assert sums.shape == (segments, rows, outputs)
            while len(sums) > 1:
                sums = sums[0::2] + sums[1::2]
            assert torch.equal(sums[0], linear(x, weight, out_dtype=torch.float32))


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("name", ["q4_0", "w8_channel", "q4_k"])
@pytest.mark.parametrize("activations", Activations)
def test_sums_of_coded_weights_apart(name, activations, kernel_set):
    weight = pack_coded(make(name, 70, 256), 2, activations, torch.bfloat16)
    for rows in (1, 7, 20):
        x = randn(rows, 256).bfloat16()
        first, second = linear_apart(x, weight)
        assert torch.equal(first + second, linear(x, weight, out_dtype=torch.float32))


def test_no_tokens(kernel_set):
    layer = packed(weights_of(torch.float32))
    ids, weights = torch.empty(0, 2, dtype=torch.int32), torch.empty(0, 2)
    assert experts(torch.empty(0, WIDTH), ids, weights, layer).shape == (0, OUTPUTS)


def test_errors(kernel_set):
    matrices = weights_of(torch.float32)
    with pytest.raises(ValueError, match=r"Experts: 1 weights of gates, 0 behind them"):
        Experts([pack(matrices[0][0])], [], Activation.SILU)
    with pytest.raises(ValueError, match=r"Experts: expert 1 has the sizes \[32, 40, 72, 48, 1\], expected \[96, "):
        packed([matrices[0], (matrices[1][0], matrices[0][1])], segments=1)
    with pytest.raises(ValueError, match=r"Experts: there is a bias for experts of several widths"):
        packed(matrices, bias=torch.zeros(5, 96))
    layer, (ids, weights) = packed(matrices), choices(3)
    with pytest.raises(ValueError, match=r"experts: x has shape \[3, 39\], expected \[3, 40\]"):
        experts(torch.zeros(3, 39), ids, weights, layer)
    with pytest.raises(ValueError, match=r"experts: weights has shape \[3, 2\], expected \[3, 3\]"):
        experts(torch.zeros(3, 40), ids, weights[:, :2], layer)
