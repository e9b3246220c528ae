import itertools
import threading

import pytest
import torch

from penstock.kernels import native
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import allocate_cache, paged_attention, reference
from tests import kernel_sets
from tests.kernels.accuracy import DTYPES, assert_rounded_once, relative_rms
from tests.kernels.paging import held, scene, slot_mapping

FORMS = {
    "plain": {},
    "window": {"window": 20},
    "window of one": {"window": 1},
    "softcap": {"softcap": 3.0},
    "sinks": {"sinks": True},
    "slopes": {"slopes": True},
    "all": {"window": 33, "softcap": 5.0, "sinks": True, "slopes": True},
}
NEAR = {torch.float32: 3e-6, torch.bfloat16: 4e-3, torch.float16: 5e-4}
"""Relative RMS: rounding the exact result to 16 bits alone is 1.7e-3 and 2.1e-4."""


def narrow(kernel_set):
    """A dtype of 16 bits that is computed in: bfloat16, but where Triton's interpreter would."""
    return torch.float16 if kernel_set == "gpu" and not kernel_sets.HAS_GPU else torch.bfloat16


def form_of(name, num_heads=4, scale=0.3):
    return with_numbers({"scale": scale, **FORMS[name]}, num_heads)


def with_numbers(form, num_heads):
    """Give each head a sink and a slope, where there are any."""
    numbers = {"sinks": torch.linspace(-2, 4, num_heads), "slopes": 2.0 ** -torch.arange(1, num_heads + 1)}
    return form | {name: numbers[name] for name in form if name in numbers}


def naive(made, part, scale, window=0, softcap=0.0, sinks=None, slopes=None):
    """The output of one part, float64 [count, H, D], head by head from K and V as they were before paging."""
    sequence, start, count = part
    q = made.q[sequence][start : start + count].double()
    k, v = (held(of[sequence][: start + count], made.cache.dtype) for of in (made.k, made.v))
    query, key = torch.arange(start, start + count)[:, None], torch.arange(start + count)
    visible = (key <= query) & (key > query - window) if window else key <= query
    heads = []
    for head in range(q.shape[1]):
        kv_head = head // (q.shape[1] // k.shape[1])
        scores = q[:, head] @ k[:, kv_head].T * scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        if slopes is not None:
            scores = scores + slopes[head].double() * (key - query)
        scores = scores.masked_fill(~visible, -torch.inf)
        if sinks is not None:
            scores = torch.cat([scores, sinks[head].double().expand(count, 1)], dim=1)
        weights = torch.softmax(scores, dim=1)[:, : len(v)]
        heads.append(weights @ v[:, kv_head])
    return torch.stack(heads, dim=1)


def check_against_naive(kernel_set, made, parts, form):
    outs = made.attend(parts, **form)
    exact = [naive(made, part, **form) for part in parts]
    if kernel_set == "reference":
        for out, own in zip(outs, exact, strict=True):
            assert_rounded_once(out, own)
    else:
        assert relative_rms(torch.cat(outs), torch.cat(exact)) < NEAR[outs[0].dtype]


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_tokens", [1, 17, 100])
@pytest.mark.parametrize("form", FORMS)
def test_one_chunk(kernel_set, form, num_tokens, dtype):
    made = scene([num_tokens + 7], dtype=dtype)
    check_against_naive(kernel_set, made, [(0, 7, num_tokens)], form_of(form))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_chunks_and_decode_rows_in_one_call(kernel_set, form, dtype):
    lengths = [1, 17, 100, 64, 33, 40, 3]
    made = scene(lengths, dtype=dtype)
    counts = [1, 1, 16, 63, 1, 16, 3]
    parts = [(i, length - count, count) for i, (length, count) in enumerate(zip(lengths, counts, strict=True))]
    check_against_naive(kernel_set, made, parts, form_of(form))


@pytest.mark.parametrize("head_dim", [16, 24, 64, 80, 128, 320])
@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (4, 2), (5, 1), (8, 1), (16, 2), (23, 1)])
def test_heads(kernel_set, heads, head_dim):
    made = scene([37, 20], num_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim, dtype=narrow(kernel_set))
    form = form_of("all", num_heads=heads[0], scale=head_dim**-0.5)
    check_against_naive(kernel_set, made, [(0, 30, 7), (1, 19, 1)], form)


def test_a_sink_may_outweigh_all_keys_or_none(kernel_set):
    made = scene([37])
    sinks = torch.tensor([-torch.inf, -2000.0, 100.0, 2000.0])
    check_against_naive(kernel_set, made, [(0, 30, 7)], {"scale": 0.3, "sinks": sinks})
    plain, sunk = (made.attend([(0, 30, 7)], scale=0.3, **form)[0] for form in ({}, {"sinks": sinks}))
    assert torch.equal(sunk[:, :2], plain[:, :2])
    assert (sunk[:, 3] == 0).all()


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 5, 16, 32, 48, 64])
def test_block_sizes(kernel_set, bit_contract, block_size, dtype):
    made, usual = (scene([137], dtype=dtype, block_size=size) for size in (block_size, 16))
    kv_write(made.k[0], made.v[0], usual.cache, slot_mapping(usual.tables[0, :9], torch.arange(137), 16))
    usual.q[0].copy_(made.q[0])
    for part in [(0, 95, 42), (0, 89, 1)]:
        check_against_naive(kernel_set, made, [part], form_of("all"))
        assert torch.equal(*(some.attend([part], **form_of("all"))[0] for some in (made, usual)))


@pytest.mark.parametrize(("dtype", "cache_dtype"), list(itertools.permutations(DTYPES, 2)))
def test_the_cache_may_have_a_dtype_of_its_own(kernel_set, dtype, cache_dtype):
    made = scene([37], dtype=dtype, cache_dtype=cache_dtype)
    check_against_naive(kernel_set, made, [(0, 20, 17)], form_of("plain"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cuts", [[1] * 100, [7, 64, 28, 1], [64, 36], [99, 1]])
def test_chunked_has_the_bits_of_whole(kernel_set, bit_contract, cuts, form, dtype):
    made = scene([100], dtype=dtype)
    whole = made.attend([(0, 0, 100)], **form_of(form))[0]
    start, chunks = 0, []
    for count in cuts:
        chunks += made.attend([(0, start, count)], **form_of(form))
        start += count
    assert torch.equal(torch.cat(chunks), whole)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_batched_has_the_bits_of_alone(kernel_set, bit_contract, form, dtype):
    lengths = [1, 17, 300, 64, 33, 40, 3, 129]
    made = scene(lengths, dtype=dtype)
    counts = [1, 1, 16, 63, 1, 16, 3, 1]
    parts = [(i, length - count, count) for i, (length, count) in enumerate(zip(lengths, counts, strict=True))]
    for part, out in zip(parts, made.attend(parts, **form_of(form)), strict=True):
        assert torch.equal(made.attend([part], **form_of(form))[0], out)


@pytest.mark.parametrize("form", ["plain", "all"])
def test_how_the_reference_cuts_its_work_changes_no_bits(monkeypatch, form):
    kernel_sets.use(monkeypatch, "reference")
    made = scene([100, 100, 30, 90])
    parts = [(0, 0, 100), (1, 0, 100), (2, 29, 1), (3, 89, 1)]
    whole = torch.cat(made.attend(parts, **form_of(form)))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        assert torch.equal(torch.cat(made.attend(parts, **form_of(form))), whole)
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr(reference, "MAX_GATHERED", 1)
    monkeypatch.setattr(reference, "MAX_SCORES", 5000)
    assert torch.equal(torch.cat(made.attend(parts, **form_of(form))), whole)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("is_key_bad", [True, False])
@pytest.mark.parametrize(("dtype", "position"), [(torch.float32, 40), (torch.bfloat16, 41)])
@pytest.mark.parametrize("form", FORMS)
def test_what_a_query_does_not_see_cannot_harm_it(kernel_set, bit_contract, form, dtype, position, is_key_bad, bad):
    """A value that overflowed at one position is seen by the later queries (of the window) and by no others."""
    made, clean = (scene([64], num_kv_heads=1, dtype=dtype) for _ in range(2))
    k, v = (of[0][position : position + 1].clone() for of in (made.k, made.v))
    if is_key_bad:
        k.fill_(bad)
    v[:, :, ::3] = bad
    kv_write(k, v, made.cache, slot_mapping(made.tables[0, :4], torch.tensor([position]), 16))
    out, expected = (some.attend([(0, 0, 64)], **form_of(form))[0] for some in (made, clean))
    window = form_of(form).get("window", 0)
    seen = torch.zeros(64, dtype=torch.bool)
    seen[position : position + window if window else None] = True
    assert torch.equal(out[~seen], expected[~seen])
    assert not out[seen].isfinite().all()
    decode = torch.cat([made.attend([(0, at, 1)], **form_of(form))[0] for at in range(64)])
    assert torch.equal(decode.nan_to_num(9.0, 8.0, 7.0), out.nan_to_num(9.0, 8.0, 7.0))


@pytest.mark.slow_in_interpreter
def test_tables_cost_nothing_past_the_longest_sequence(kernel_set, bit_contract):
    """All entries of these tables would be 100 million tokens, 200 GB in float64."""
    made = scene([20, 5], head_dim=64)
    wide = torch.full((2, 100_000), -1, dtype=torch.int32)
    wide[:, : made.tables.shape[1]] = made.tables
    q = torch.stack([made.q[0][19], made.q[1][4]]).repeat(32, 1, 1)
    starts, counts = torch.tensor([19, 4], dtype=torch.int32).repeat(32), torch.ones(64, dtype=torch.int32)
    out = paged_attention(q, made.cache, wide.repeat(32, 1), starts, counts, scale=0.3)
    assert torch.equal(out[:2], torch.cat(made.attend([(0, 19, 1), (1, 4, 1)], scale=0.3)))
    assert torch.equal(out, out[:2].repeat(32, 1, 1))


def test_nothing_to_do(kernel_set, bit_contract):
    made = scene([20, 5])
    assert made.attend([(0, 20, 0)], scale=0.3)[0].shape == (0, 4, 32)
    out = made.attend([(0, 19, 1), (1, 3, 0), (1, 4, 1)], scale=0.3)
    assert torch.equal(out[2], made.attend([(1, 4, 1)], scale=0.3)[0])
    none = torch.empty(0, dtype=torch.int32)
    assert paged_attention(made.q[0][:0], made.cache, made.tables[:0], none, none, scale=0.3).shape == (0, 4, 32)


@pytest.mark.slow_in_interpreter
def test_a_sequence_grows_by_writing_and_reading(kernel_set, bit_contract):
    """Prefill, then token after token as a shard does it, equals everything written at once."""
    whole, grown = scene([50], dtype=narrow(kernel_set)), scene([50], dtype=narrow(kernel_set))
    grown.cache.data.view(narrow(kernel_set)).fill_(torch.nan)
    blocks = grown.tables[0, :4]
    outs = []
    for start, count in [(0, 30), *((position, 1) for position in range(30, 50))]:
        some = slice(start, start + count)
        positions = torch.arange(start, start + count)
        kv_write(grown.k[0][some], grown.v[0][some], grown.cache, slot_mapping(blocks, positions, 16))
        outs += grown.attend([(0, start, count)], scale=0.3)
    assert torch.equal(torch.cat(outs), whole.attend([(0, 0, 50)], scale=0.3)[0])


def test_blocks_that_do_not_exist_are_an_error(cpu_kernels):
    made = scene([20, 5])
    made.tables[0, 1] = made.cache.num_blocks
    assert made.attend([(0, 15, 1)], scale=1.0)[0].isfinite().all()
    with pytest.raises(ValueError, match="tables name blocks that are not among the cache's 6"):
        made.attend([(0, 16, 1)], scale=1.0)


def test_rows_may_be_columns_of_a_matrix(kernel_set, bit_contract):
    made = scene([20, 5], dtype=narrow(kernel_set))
    whole = made.attend([(0, 3, 17), (1, 4, 1)], scale=0.3)
    q = torch.cat([made.q[0][3:], made.q[1][4:]]).flatten(1)
    matrix = torch.cat([torch.full_like(q, torch.nan), q, torch.full_like(q, torch.nan)], dim=1)
    rows = matrix[:, q.shape[1] : 2 * q.shape[1]].unflatten(1, (4, 32))
    starts, counts = torch.tensor([3, 4], dtype=torch.int32), torch.tensor([17, 1], dtype=torch.int32)
    assert torch.equal(paged_attention(rows, made.cache, made.tables, starts, counts, scale=0.3), torch.cat(whole))


@pytest.fixture
def set_threads():
    yield lambda count: native.library.set_threads(count, None)
    native.library.set_threads(1, None)


LONG_FORMS = {"plain": {}, "window": {"window": 700}, "slopes": {"slopes": True},
              "all": {"window": 101, "softcap": 5.0, "sinks": True, "slopes": True}}


def long_form(name, num_heads):
    return with_numbers({"scale": 0.2, **LONG_FORMS[name]}, num_heads)


@pytest.mark.parametrize("form", LONG_FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bits(cpu_kernels, set_threads, dtype, form):
    """Decode rows of many segments are cut, chunks are not, and all of it is shared."""
    made = scene([2100, 700, 33, 513], num_heads=6, dtype=dtype)
    mixed = [(0, 2099, 1), (1, 600, 100), (2, 32, 1), (3, 511, 2)]
    outs = {}
    for threads in (1, 2, 3):
        set_threads(threads)
        calls = (mixed, [mixed[0]], [mixed[3]])
        outs[threads] = [torch.cat(made.attend(parts, **long_form(form, 6))) for parts in calls]
    for threads in (2, 3):
        assert all(torch.equal(one, more) for one, more in zip(outs[1], outs[threads], strict=True))
    assert torch.equal(outs[1][0][:1], outs[1][1])
    assert torch.equal(outs[1][0][-2:], outs[1][2])
    exact = torch.cat([naive(made, part, **long_form(form, 6)) for part in mixed])
    assert relative_rms(outs[1][0], exact) < NEAR[dtype]


def test_calls_from_two_threads_at_once(cpu_kernels, set_threads):
    set_threads(2)
    made = scene([600, 300], dtype=torch.bfloat16)
    parts = [(0, 500, 100), (1, 299, 1)]
    expected = torch.cat(made.attend(parts, scale=0.2))
    outs = [[], []]
    threads = [
        threading.Thread(target=lambda own=own: own.extend(torch.cat(made.attend(parts, scale=0.2)) for _ in range(20)))
        for own in outs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(out, expected) for own in outs for out in own)
    assert len(outs[0]) == len(outs[1]) == 20


def chunked(made, cuts, length, **form):
    start, chunks, counts = 0, [], itertools.cycle(cuts)
    while start < length:
        count = min(next(counts), length - start)
        chunks += made.attend([(0, start, count)], **form)
        start += count
    return torch.cat(chunks)


@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks_of_a_long_sequence_have_the_bits_of_whole(cpu_kernels, dtype):
    made = scene([1100], num_heads=3, num_kv_heads=1, head_dim=16, dtype=dtype)
    for form in LONG_FORMS:
        whole = made.attend([(0, 0, 1100)], **long_form(form, 3))[0]
        for cuts in ([7], [64, 100, 1, 391]):
            assert torch.equal(chunked(made, cuts, 1100, **long_form(form, 3)), whole)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", LONG_FORMS)
@pytest.mark.parametrize("heads", [(15, 5), (8, 8), (14, 2), (71, 1)])
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128, 256])
def test_bits_of_awkward_shapes(cpu_kernels, set_threads, head_dim, heads, form, dtype):
    made = scene([1100, 200], num_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim, dtype=dtype)
    set_threads(2)
    whole, other = made.attend([(0, 0, 1100), (1, 0, 200)], **long_form(form, heads[0]))
    for cuts in ([1], [7], [64], [100], [3, 1, 250, 2, 77]):
        assert torch.equal(chunked(made, cuts, 1100, **long_form(form, heads[0])), whole)
    assert torch.equal(made.attend([(1, 0, 200)], **long_form(form, heads[0]))[0], other)
    exact = naive(made, (0, 900, 200), **long_form(form, heads[0]))
    assert relative_rms(whole[900:], exact) < NEAR[dtype]


def test_denormals_have_the_bits_of_alone(cpu_kernels):
    """Values near the smallest numbers, as bfloat16 and float32 have them."""
    for dtype in (torch.bfloat16, torch.float32):
        made = scene([130], dtype=dtype)
        made.q[0].mul_(1e-20)
        entries = slot_mapping(made.tables[0, :9], torch.arange(130), 16)
        kv_write(made.k[0] * 1e-19, made.v[0] * 1e-38, made.cache, entries)
        whole = made.attend([(0, 0, 130)], scale=1.0)[0]
        assert torch.equal(chunked(made, [1], 130, scale=1.0).view(torch.uint8), whole.contiguous().view(torch.uint8))
        assert whole.abs().max() > 0
        assert not (whole.signbit() & (whole == 0)).any()


def test_every_output_is_written(cpu_kernels, monkeypatch):
    made = scene([40, 9], num_heads=6, head_dim=24, dtype=torch.bfloat16)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, **options: empty(*args, **options).fill_(torch.nan))
    assert all(out.isfinite().all() for out in made.attend([(0, 3, 37), (1, 8, 1)], scale=0.3))


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
def test_rewriting_the_end_of_a_sequence(kernel_set, bit_contract, dtype):
    """Drafts that were taken back leave their K and V behind, even Inf; they are overwritten before they are seen."""
    made, fresh = (scene([60], dtype=dtype) for _ in range(2))
    draft = torch.full((21, 2, 32), torch.inf, dtype=dtype)
    kv_write(draft, draft, made.cache, slot_mapping(made.tables[0, :4], torch.arange(39, 60), 16))
    for position in range(39, 60):
        some = slice(position, position + 1)
        entries = slot_mapping(made.tables[0, :4], torch.tensor([position]), 16)
        kv_write(made.k[0][some], made.v[0][some], made.cache, entries)
        out, expected = (of.attend([(0, position, 1)], scale=0.3)[0] for of in (made, fresh))
        assert torch.equal(out, expected)


def test_a_large_scale_and_large_scores(cpu_kernels):
    made = scene([100])
    for form in ({"scale": 30.0}, {"scale": 30.0, "softcap": 50.0}):
        exact = naive(made, (0, 60, 40), **form)
        assert relative_rms(made.attend([(0, 60, 40)], **form)[0], exact) < 1e-4  # scores near 500, in float32


def test_a_head_that_is_too_large_is_an_error(cpu_kernels):
    with pytest.raises(ValueError, match="head_dim 5000 is larger than 4096"):
        allocate_cache(1, block_size=16, num_kv_heads=1, head_dim=5000, dtype=torch.float32, device="cpu")
