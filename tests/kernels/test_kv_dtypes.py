"""KV caches of 8 bits: how a number is stored, and attention over what is stored."""


import pytest
import torch

from penstock.kernels import native
from penstock.kernels.kv_cache import LARGEST
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import allocate_cache, block_bytes
from tests import kernel_sets
from tests.kernels.accuracy import DTYPES, relative_rms
from tests.kernels.paging import held, scene, slot_mapping
from tests.kernels.test_paged_attention import FORMS, NEAR, check_against_naive, chunked, form_of, long_form, naive

ALL = torch.arange(100)


def pairs():
    """Each set of kernels with each dtype of 8 bits that it has."""
    yield from ((name, torch.int8) for name in kernel_sets.CPU_SETS)
    yield from (("reference", dtype) for dtype in LARGEST)
    marks = pytest.mark.gpu if kernel_sets.HAS_GPU else ()
    yield from (pytest.param("gpu", dtype, marks=marks) for dtype in LARGEST)


each_dtype = pytest.mark.parametrize(("kernel_set", "cache_dtype"), list(pairs()), indirect=["kernel_set"])


@pytest.fixture
def set_threads():
    yield lambda count: native.library.set_threads(count, None)
    native.library.set_threads(1, None)


def awkward(dtype):
    """Tokens [100, 2, 32] of all sizes: zeros, heads that differ by much, numbers half way between two whole ones."""
    x = torch.randn(100, 2, 32, generator=torch.Generator().manual_seed(3)) * torch.logspace(-4, 4, 100)[:, None, None]
    x[3, 0], x[4], x[5, 1, 1:] = 0.0, 0.0, 0.0
    x[6] = (torch.arange(64).view(2, 32) - 31.5).clamp(max=31.0)
    x[6, :, 0] = -127.0
    x[7, 0], x[7, 1] = 3e4, -1e-3
    return x.to(dtype)


@pytest.mark.slow_in_interpreter
@each_dtype
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_head_of_a_token_is_divided_by_a_scale_of_its_own(kernel_set, cache_dtype, dtype):
    """Under a window of one key a query's output is that key's value, as it is stored."""
    made, v = scene([100], cache_dtype=cache_dtype), awkward(dtype)
    kv_write(made.k[0].to(dtype), v, made.cache, slot_mapping(made.tables[0, :7], ALL, 16))
    out = made.attend([(0, 0, 100)], scale=0.3, window=1)[0]
    expected = held(v, cache_dtype).repeat_interleave(2, dim=1)
    assert relative_rms(out, expected) < NEAR[torch.float32]
    if kernel_set != "gpu":
        assert torch.equal(out, expected.float())
    assert (out[3, :2] == 0).all()
    assert (out[4] == 0).all()


@pytest.mark.slow_in_interpreter
@each_dtype
def test_half_a_unit_away_at_most(kernel_set, cache_dtype):
    made, v = scene([100], cache_dtype=cache_dtype), awkward(torch.float32)
    kv_write(made.k[0], v, made.cache, slot_mapping(made.tables[0, :7], ALL, 16))
    out = made.attend([(0, 0, 100)], scale=0.3, window=1)[0][:, ::2]
    top = v.abs().amax(dim=2, keepdim=True)
    unit = {torch.int8: top / 127, torch.float8_e4m3fn: (v.abs() / 8).clamp(min=top / 448 * 2**-9),
            torch.float8_e5m2: (v.abs() / 4).clamp(min=top / 57344 * 2**-16)}[cache_dtype]
    assert ((out - v).abs() <= unit * 0.5001).all()


@each_dtype
def test_numbers_too_small_for_a_scale_are_0(kernel_set, cache_dtype):
    made, v = scene([20], cache_dtype=cache_dtype), torch.zeros(20, 2, 32)
    v[:, :, 3] = 1e-44  # divided by the largest number it is 0
    kv_write(v, v, made.cache, slot_mapping(made.tables[0, :2], torch.arange(20), 16))
    assert (made.attend([(0, 5, 15)], scale=0.3)[0] == 0).all()


@pytest.mark.slow_in_interpreter
@each_dtype
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_chunks_and_decode_rows_in_one_call(kernel_set, cache_dtype, form, dtype):
    lengths = [1, 17, 100, 33, 40]
    made = scene(lengths, dtype=dtype, cache_dtype=cache_dtype)
    counts = [1, 1, 16, 1, 17]
    parts = [(i, length - count, count) for i, (length, count) in enumerate(zip(lengths, counts, strict=True))]
    check_against_naive(kernel_set, made, parts, form_of(form))


@each_dtype
@pytest.mark.parametrize(("heads", "head_dim"), [
    ((3, 3), 64), ((5, 1), 80), ((8, 2), 128), ((16, 2), 24), ((2, 2), 320)])
def test_heads(kernel_set, cache_dtype, heads, head_dim):
    made = scene([37, 20], num_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim, cache_dtype=cache_dtype)
    form = form_of("all", num_heads=heads[0], scale=head_dim**-0.5)
    check_against_naive(kernel_set, made, [(0, 30, 7), (1, 19, 1)], form)


@pytest.mark.slow_in_interpreter
@each_dtype
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 5, 32])
def test_block_sizes_change_no_bits(kernel_set, cache_dtype, block_size, dtype):
    made, usual = (scene([77], dtype=dtype, cache_dtype=cache_dtype, block_size=size) for size in (block_size, 16))
    kv_write(made.k[0], made.v[0], usual.cache, slot_mapping(usual.tables[0, :5], torch.arange(77), 16))
    usual.q[0].copy_(made.q[0])
    for part in [(0, 40, 37), (0, 70, 1)]:
        check_against_naive(kernel_set, made, [part], form_of("all"))
        assert torch.equal(*(some.attend([part], **form_of("all"))[0] for some in (made, usual)))


@pytest.mark.slow_in_interpreter
@each_dtype
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["plain", "all"])
def test_bits_are_those_of_whole_and_alone(kernel_set, cache_dtype, form, dtype):
    lengths = [100, 17, 130, 33]
    made = scene(lengths, dtype=dtype, cache_dtype=cache_dtype)
    whole = made.attend([(0, 0, 100)], **form_of(form))[0]
    for cuts in ([1, 7, 64, 28], [64, 36], [99, 1]):
        assert torch.equal(chunked(made, cuts, 100, **form_of(form)), whole)
    parts = [(0, 99, 1), (1, 1, 16), (2, 129, 1), (3, 0, 33)]
    for part, out in zip(parts, made.attend(parts, **form_of(form)), strict=True):
        assert torch.equal(made.attend([part], **form_of(form))[0], out)


@each_dtype
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_is_stored_as_if_it_were_alone(kernel_set, cache_dtype, dtype):
    k, v = awkward(dtype), awkward(dtype).flip(0)
    caches = [allocate_cache(8, block_size=16, num_kv_heads=2, head_dim=32, dtype=cache_dtype, device="cpu")
              for _ in range(2)]
    for cache in caches:
        cache.data.fill_(0xFF)
    places = torch.randperm(8 * 16, generator=torch.Generator().manual_seed(5))[:100]
    kept = torch.randperm(kernel_sets.few(kernel_set, 100, 20))
    kv_write(k[kept], v[kept], caches[0], places[kept])
    for token in kept.split(1):
        kv_write(k[token], v[token], caches[1], places[token])
    assert torch.equal(caches[0].data, caches[1].data)
    assert (caches[0].data != 0xFF).sum() <= 100 * 2 * 2 * (32 + 4)


@pytest.mark.slow_in_interpreter
@each_dtype
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("is_key_bad", [True, False])
@pytest.mark.parametrize(("dtype", "position"), [(torch.float32, 40), (torch.bfloat16, 41)])
@pytest.mark.parametrize("form", ["plain", "all"])
def test_what_a_query_does_not_see_cannot_harm_it(kernel_set, cache_dtype, form, dtype, position, is_key_bad, bad):
    """A head that overflowed at one position has no scale: it is seen by the later queries and by no others."""
    made, clean = (scene([64], num_kv_heads=1, dtype=dtype, cache_dtype=cache_dtype) for _ in range(2))
    k, v = (of[0][position : position + 1].clone() for of in (made.k, made.v))
    (k if is_key_bad else v)[:, :, 3] = bad
    kv_write(k, v, made.cache, slot_mapping(made.tables[0, :4], torch.tensor([position]), 16))
    out, expected = (some.attend([(0, 0, 64)], **form_of(form))[0] for some in (made, clean))
    window = form_of(form).get("window", 0)
    seen = torch.zeros(64, dtype=torch.bool)
    seen[position : position + window if window else None] = True
    assert torch.equal(out[~seen], expected[~seen])
    assert not out[seen].isfinite().any()
    decode = torch.cat([made.attend([(0, at, 1)], **form_of(form))[0] for at in range(36, 64)])
    assert torch.equal(decode.nan_to_num(9.0, 8.0, 7.0), out[36:].nan_to_num(9.0, 8.0, 7.0))


@pytest.mark.slow_in_interpreter
@each_dtype
def test_a_block_moves_by_copying_its_row(kernel_set, cache_dtype):
    made = scene([50], cache_dtype=cache_dtype)
    before = made.attend([(0, 0, 50)], scale=0.2)[0]
    source, target = int(made.tables[0, 1]), (set(range(7)) - set(made.tables[0].tolist())).pop()
    made.cache.data[target] = made.cache.data[source]
    made.cache.data[source] = 255
    made.tables[0, 1] = target
    assert torch.equal(made.attend([(0, 0, 50)], scale=0.2)[0], before)


@each_dtype
def test_bytes_of_a_block(kernel_set, cache_dtype):
    assert block_bytes(block_size=16, num_kv_heads=3, head_dim=48, dtype=cache_dtype) == 2 * 3 * 16 * (48 + 4)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_processor_refuses_8_bits_of_floating_point(cpu_kernels, dtype):
    with pytest.raises(ValueError, match=f"a KV cache of {dtype} is for GPUs, a processor's kernels have torch.int8"):
        allocate_cache(1, block_size=16, num_kv_heads=1, head_dim=16, dtype=dtype, device="cpu")


@pytest.mark.parametrize("form", ["plain", "window", "all"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_segments_change_no_bits(cpu_kernels, set_threads, dtype, form):
    made = scene([1300, 33, 513], num_heads=6, dtype=dtype, cache_dtype=torch.int8)
    parts = [(0, 1299, 1), (1, 32, 1), (2, 400, 113)]
    outs = {}
    for threads in (1, 2, 3):
        set_threads(threads)
        outs[threads] = torch.cat(made.attend(parts, **long_form(form, 6)))
    assert torch.equal(outs[1], outs[2])
    assert torch.equal(outs[1], outs[3])
    assert torch.equal(outs[1], torch.cat([made.attend([part], **long_form(form, 6))[0] for part in parts]))
    exact = torch.cat([naive(made, part, **long_form(form, 6)) for part in parts])
    assert relative_rms(outs[1], exact) < NEAR[dtype]


def test_threads_store_the_same(cpu_kernels, set_threads):
    k, v = torch.randn(2, 2000, 3, 48)
    caches = []
    for threads in (1, 2, 3):
        set_threads(threads)
        cache = allocate_cache(125, block_size=16, num_kv_heads=3, head_dim=48, dtype=torch.int8, device="cpu")
        kv_write(k, v, cache, torch.arange(2000))
        caches.append(cache.data)
    assert torch.equal(caches[0], caches[1])
    assert torch.equal(caches[0], caches[2])
