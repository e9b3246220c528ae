import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from penstock.kernels.rope import reference, rope
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS, assert_rounded_once, relative_rms
from tests.kernels.compiled import assert_near, poison, threads
from tests.kernels.rotation import angles


def tensors(num_tokens, heads, head_dim, dtype):
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(num_tokens, heads[0], head_dim, generator=generator).to(dtype)
    k = torch.randn(num_tokens, heads[1], head_dim, generator=generator).to(dtype)
    return q, k, torch.randint(0, 300, (num_tokens,), generator=generator)


@pytest.mark.parametrize("kernel_set", ["reference"], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [32, 48, 64, 80, 128, 256])
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_as_transformers(num_tokens, head_dim, dtype, kernel_set):
    q, k, positions = tensors(num_tokens, (6, 2), head_dim, dtype)
    cos, sin = angles(300, head_dim)
    rotated = rope(q, k, cos, sin, positions)
    double = [torch.cat([table[positions].double()] * 2, dim=-1)[None] for table in (cos, sin)]
    for ours, theirs, given in zip(
        rotated,
        apply_rotary_pos_emb(q.double().transpose(0, 1)[None], k.double().transpose(0, 1)[None], *double),
        (q, k),
        strict=True,
    ):
        assert ours.shape == given.shape
        assert ours.dtype == dtype
        assert_rounded_once(ours, theirs[0].transpose(0, 1))
    if dtype == torch.float32:
        single = [table.float() for table in double]
        theirs, _ = apply_rotary_pos_emb(q.transpose(0, 1)[None], k.transpose(0, 1)[None], *single)
        assert relative_rms(rotated[0], theirs[0].transpose(0, 1).double()) < 1e-7


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_interleaved", [False, True])
def test_compiled_values(dtype, is_interleaved, cpu_kernels, monkeypatch):
    """Cosines and sines of float32 times values of the dtype: two roundings, of which one may be to float32."""
    poison(monkeypatch)
    for head_dim in (2, 24, 32, 48, 64, 80, 96, 128, 256):
        cos, sin = angles(300, head_dim)
        for num_tokens, heads in ((1, (6, 2)), (17, (3, 3)), (70, (9, 1))):
            q, k, positions = tensors(num_tokens, heads, head_dim, dtype)
            exact = reference.rope(q.double(), k.double(), cos, sin, positions, is_interleaved)
            for ours, theirs in zip(rope(q, k, cos, sin, positions, is_interleaved), exact, strict=True):
                assert (ours.shape, ours.dtype) == (theirs.shape, dtype)
                assert ours.is_contiguous()
                assert_near(ours, theirs)


def test_interleaved_pairs_turn_as_halves_do(kernel_set):
    """What is interleaved is the halves' dimensions in another order; the rest stays."""
    q, k, positions = tensors(17, (4, 1), 80, torch.float32)
    cos, sin = angles(300, 50)
    order = torch.cat([torch.arange(0, 50, 2), torch.arange(1, 50, 2), torch.arange(50, 80)])
    halves = rope(q[..., order].contiguous(), k[..., order].contiguous(), cos, sin, positions)
    for ours, expected in zip(rope(q, k, cos, sin, positions, is_interleaved=True), halves, strict=True):
        assert torch.equal(ours[..., order], expected)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("num_tokens", [0, 1, 2, 40])
def test_rows_may_lie_apart(num_tokens, kernel_set):
    """q and k as parts of one matrix, as a linear layer gives them."""
    qkv = torch.randn(num_tokens, 4 * 32 + 2 * 32 + 5, generator=torch.Generator().manual_seed(6))
    q, k = qkv[:, : 4 * 32].unflatten(1, (4, 32)), qkv[:, 4 * 32 : 6 * 32].unflatten(1, (2, 32))
    positions = torch.arange(num_tokens)
    apart = rope(q, k, *angles(300, 32), positions)
    for ours, whole in zip(apart, rope(q.contiguous(), k.contiguous(), *angles(300, 32), positions), strict=True):
        assert torch.equal(ours, whole)
        assert ours.is_contiguous()


def test_threads_change_no_bits(cpu_kernels):
    q, k, positions = tensors(200, (6, 2), 80, torch.bfloat16)
    results = []
    for count in (1, 2, 3):
        with threads(count):
            results.append(rope(q, k, *angles(300, 80), positions))
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dimensions_past_the_rotated_ones_stay(dtype, kernel_set):
    q, k, positions = tensors(17, (4, 1), 80, dtype)
    cos, sin = angles(300, 32)
    whole = rope(q[..., :32].contiguous(), k[..., :32].contiguous(), cos, sin, positions)
    for ours, rotated, given in zip(rope(q, k, cos, sin, positions), whole, (q, k), strict=True):
        assert torch.equal(ours[..., :32], rotated)
        assert torch.equal(ours[..., 32:], given[..., 32:])


@pytest.mark.slow_in_interpreter
def test_a_token_has_the_same_bits_in_any_batch(kernel_set):
    q, k, positions = tensors(63, (4, 2), 80, torch.float32)
    cos, sin = angles(300, 80)
    batch = rope(q, k, cos, sin, positions)
    for token in range(63):
        some = slice(token, token + 1)
        alone = rope(q[some], k[some], cos, sin, positions[some])
        assert torch.equal(alone[0], batch[0][some])
        assert torch.equal(alone[1], batch[1][some])


def test_errors_name_the_shapes(kernel_set):
    q, k, positions = tensors(3, (4, 2), 32, torch.float32)
    cos, sin = angles(300, 32)
    with pytest.raises(ValueError, match=r"rope: k has shape \[2, 2, 32\], expected \[3, 2, 32\]"):
        rope(q, k[:2], cos, sin, positions)
    with pytest.raises(ValueError, match=r"rope: sin has shape \[299, 16\], expected \[300, 16\]"):
        rope(q, k, cos, sin[:299], positions)
    with pytest.raises(ValueError, match=r"rope: positions has shape \[2\], expected \[3\]"):
        rope(q, k, cos, sin, positions[:2])
    with pytest.raises(ValueError, match=r"rope: positions \[3\] has dtype torch.int32, expected torch.int64"):
        rope(q, k, cos, sin, positions.int())
    with pytest.raises(ValueError, match=r"rope: cos \[300, 20\] rotates 40 dimensions, a head has 32"):
        rope(q, k, *angles(300, 40), positions)
    with pytest.raises(ValueError, match=r"rope: a row of q \[3, 4, 32\] is not contiguous"):
        rope(torch.randn(3, 8, 32)[:, ::2], k, cos, sin, positions)
    with pytest.raises(ValueError, match=r"rope: a row of q \[3, 4, 32\] is not contiguous"):
        rope(torch.randn(3, 32, 4).transpose(1, 2), k, cos, sin, positions)
