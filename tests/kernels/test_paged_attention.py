import itertools

import pytest
import torch

from kernels.kv_write import kv_write
from kernels.paged_attention import paged_attention, reference
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS, assert_rounded_once
from tests.kernels.paging import scene, slots

FORMS = {
    "plain": {},
    "window": {"window": 20},
    "window of one": {"window": 1},
    "softcap": {"softcap": 3.0},
    "sinks": {"sinks": True},
    "all": {"window": 33, "softcap": 5.0, "sinks": True},
}


def form_of(name, num_heads=4, scale=0.3):
    form = {"scale": scale, **FORMS[name]}
    if "sinks" in form:
        form["sinks"] = torch.linspace(-2, 4, num_heads)
    return form


def naive(made, sequence, position, scale, window=0, softcap=0.0, sinks=None):
    """The output at one position, float64 [H, D], head by head from K and V as they were before paging."""
    q = made.q[sequence][position].double()
    k = made.k[sequence][: position + 1].to(made.cache.dtype).double()
    v = made.v[sequence][: position + 1].to(made.cache.dtype).double()
    if window:
        k, v = k[-window:], v[-window:]
    heads = []
    for head in range(len(q)):
        kv_head = head // (len(q) // k.shape[1])
        scores = k[:, kv_head] @ q[head] * scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        if sinks is not None:
            scores = torch.cat([scores, sinks[head : head + 1].double()])
        weights = torch.softmax(scores, dim=0)[: len(v)]
        heads.append(weights @ v[:, kv_head])
    return torch.stack(heads)


def check_against_naive(made, parts, form):
    for (sequence, start, count), out in zip(parts, made.attend(parts, **form), strict=True):
        exact = torch.stack([naive(made, sequence, start + row, **form) for row in range(count)])
        assert_rounded_once(out, exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
@pytest.mark.parametrize("form", FORMS)
def test_one_chunk(form, num_tokens, dtype):
    made = scene([num_tokens + 7], dtype=dtype)
    check_against_naive(made, [(0, 7, num_tokens)], form_of(form))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_chunks_and_decode_rows_in_one_call(form, dtype):
    lengths = [1, 17, 100, 64, 33, 40, 3]
    made = scene(lengths, dtype=dtype)
    counts = [1, 1, 16, 63, 1, 16, 3]
    parts = [(i, length - count, count) for i, (length, count) in enumerate(zip(lengths, counts, strict=True))]
    check_against_naive(made, parts, form_of(form))


@pytest.mark.parametrize("head_dim", [32, 48, 64, 80, 128, 256])
@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (4, 2), (6, 2), (5, 1), (8, 1), (16, 2)])
def test_heads(heads, head_dim):
    made = scene([37, 20], num_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim, dtype=torch.bfloat16)
    check_against_naive(made, [(0, 30, 7), (1, 19, 1)], form_of("all", num_heads=heads[0], scale=head_dim**-0.5))


def test_a_sink_may_outweigh_all_keys_or_none():
    made = scene([37])
    sinks = torch.tensor([-torch.inf, -2000.0, 100.0, 2000.0])
    check_against_naive(made, [(0, 30, 7)], {"scale": 0.3, "sinks": sinks})
    plain, sunk = (made.attend([(0, 30, 7)], scale=0.3, **form)[0] for form in ({}, {"sinks": sinks}))
    assert torch.equal(sunk[:, :2], plain[:, :2])
    assert (sunk[:, 3] == 0).all()


@pytest.mark.parametrize("block_size", [1, 5, 16, 64])
def test_block_sizes(block_size):
    made = scene([37, 20], block_size=block_size)
    check_against_naive(made, [(0, 30, 7), (1, 19, 1)], form_of("all"))


@pytest.mark.parametrize(("dtype", "cache_dtype"), list(itertools.permutations(DTYPES, 2)))
def test_the_cache_may_have_a_dtype_of_its_own(dtype, cache_dtype):
    made = scene([37], dtype=dtype, cache_dtype=cache_dtype)
    check_against_naive(made, [(0, 20, 17)], form_of("plain"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cuts", [[1] * 100, [7, 64, 28, 1], [64, 36], [99, 1]])
def test_chunked_has_the_bits_of_whole(cuts, form, dtype):
    made = scene([100], dtype=dtype)
    whole = made.attend([(0, 0, 100)], **form_of(form))[0]
    start, chunks = 0, []
    for count in cuts:
        chunks += made.attend([(0, start, count)], **form_of(form))
        start += count
    assert torch.equal(torch.cat(chunks), whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_batched_has_the_bits_of_alone(form, dtype):
    lengths = [1, 17, 300, 64, 33, 40, 3, 129]
    made = scene(lengths, dtype=dtype)
    counts = [1, 1, 16, 63, 1, 16, 3, 1]
    parts = [(i, length - count, count) for i, (length, count) in enumerate(zip(lengths, counts, strict=True))]
    for part, out in zip(parts, made.attend(parts, **form_of(form)), strict=True):
        assert torch.equal(made.attend([part], **form_of(form))[0], out)


@pytest.mark.parametrize("form", ["plain", "all"])
def test_cutting_the_work_or_sharing_it_between_threads_changes_no_bits(monkeypatch, form):
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


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("form", FORMS)
def test_what_a_query_does_not_see_cannot_harm_it(form, bad):
    """A value that overflowed at position 40 is seen by the later queries (of the window) and by no others."""
    made, clean = scene([64], num_kv_heads=1), scene([64], num_kv_heads=1)
    blocks = made.cache.data.view(torch.float32).view(-1, 2, 1, 16, 32)
    blocks[made.tables[0, 2], :, 0, 8] = bad
    out, expected = (some.attend([(0, 0, 64)], **form_of(form))[0] for some in (made, clean))
    window = form_of(form).get("window", 0)
    seen = torch.zeros(64, dtype=torch.bool)
    seen[40 : 40 + window if window else None] = True
    assert torch.equal(out[~seen], expected[~seen])
    assert not out[seen].isfinite().all()
    decode = torch.cat([made.attend([(0, position, 1)], **form_of(form))[0] for position in range(64)])
    assert torch.equal(decode.nan_to_num(9.0, 8.0, 7.0), out.nan_to_num(9.0, 8.0, 7.0))


def test_tables_cost_nothing_past_the_longest_sequence():
    """All entries of these tables would be 100 million tokens, 200 GB in float64."""
    made = scene([20, 5], head_dim=64)
    wide = torch.full((2, 100_000), -1, dtype=torch.int32)
    wide[:, : made.tables.shape[1]] = made.tables
    q = torch.stack([made.q[0][19], made.q[1][4]]).repeat(32, 1, 1)
    starts, counts = torch.tensor([19, 4], dtype=torch.int32).repeat(32), torch.ones(64, dtype=torch.int32)
    out = paged_attention(q, made.cache, wide.repeat(32, 1), starts, counts, scale=0.3)
    assert torch.equal(out[:2], torch.cat(made.attend([(0, 19, 1), (1, 4, 1)], scale=0.3)))
    assert torch.equal(out, out[:2].repeat(32, 1, 1))


def test_nothing_to_do():
    made = scene([20, 5])
    assert made.attend([(0, 20, 0)], scale=0.3)[0].shape == (0, 4, 32)
    out = made.attend([(0, 19, 1), (1, 3, 0), (1, 4, 1)], scale=0.3)
    assert torch.equal(out[2], made.attend([(1, 4, 1)], scale=0.3)[0])
    none = torch.empty(0, dtype=torch.int32)
    assert paged_attention(made.q[0][:0], made.cache, made.tables[:0], none, none, scale=0.3).shape == (0, 4, 32)


def test_a_sequence_grows_by_writing_and_reading():
    """Prefill, then token after token as a shard does it, equals everything written at once."""
    whole, grown = scene([50], dtype=torch.bfloat16), scene([50], dtype=torch.bfloat16)
    grown.cache.data.view(torch.bfloat16).fill_(torch.nan)
    blocks = grown.tables[0, :4]
    outs = []
    for start, count in [(0, 30), *((position, 1) for position in range(30, 50))]:
        some = slice(start, start + count)
        kv_write(grown.k[0][some], grown.v[0][some], grown.cache, slots(blocks, torch.arange(start, start + count), 16))
        outs += grown.attend([(0, start, count)], scale=0.3)
    assert torch.equal(torch.cat(outs), whole.attend([(0, 0, 50)], scale=0.3)[0])


def test_errors_name_the_shapes():
    made = scene([20, 5])
    q, tables = made.q[0][:2], made.tables
    starts, counts = torch.tensor([19, 4], dtype=torch.int32), torch.ones(2, dtype=torch.int32)

    def call(q=q, tables=tables, starts=starts, counts=counts, **form):
        paged_attention(q, made.cache, tables, starts, counts, scale=1.0, **form)

    call()
    with pytest.raises(ValueError, match=r"q has shape \[2, 4, 16\], expected \[2, 4, 32\]"):
        call(q=torch.ones(2, 4, 16))
    with pytest.raises(ValueError, match=r"q \[2, 3, 32\] has 3 heads, no multiple of 2 KV heads"):
        call(q=torch.ones(2, 3, 32))
    with pytest.raises(ValueError, match=r"starts has shape \[1\], expected \[2\]"):
        call(starts=starts[:1])
    with pytest.raises(ValueError, match=r"counts \[2\] has dtype torch.int64, expected torch.int32"):
        call(counts=counts.long())
    with pytest.raises(ValueError, match=r"tables \[2, 4\] has dtype torch.int64, expected torch.int32"):
        call(tables=tables.long())
    with pytest.raises(ValueError, match=r"q has 2 rows, counts are \[1, 2\] with sum 3"):
        call(counts=torch.tensor([1, 2], dtype=torch.int32))
    with pytest.raises(ValueError, match=r"tables \[2, 4\] hold 64 positions in blocks of 16; .* need 0 to 65"):
        call(starts=torch.tensor([64, 4], dtype=torch.int32))
    with pytest.raises(ValueError, match=r"sinks has shape \[2\], expected \[4\]"):
        call(sinks=torch.ones(2))
    with pytest.raises(ValueError, match=r"window -1 and softcap 0\.0 must not be negative"):
        call(window=-1)
