"""The segments of the GPU's attention, which grow with the position: their bounds, bits and values across them, and how
programs share them out."""

import itertools
import random

import pytest
import torch

from penstock.kernels.paged_attention import gpu_form
from penstock.kernels.paged_attention.gpu_tile import count_segments
from tests import kernel_sets
from tests.kernels.accuracy import relative_rms
from tests.kernels.paging import scene
from tests.kernels.test_paged_attention import NEAR, form_of, naive

LENGTH = 4160
"""With segments of 16 positions the second size begins at 512, the third at 4096."""


@pytest.fixture
def small_segments(monkeypatch):
    monkeypatch.setattr(gpu_form, "SEGMENT", 16)
    gpu_form.form_of.cache_clear()
    yield
    gpu_form.form_of.cache_clear()


def test_segments_grow_and_scratch_does_not():
    counts = [count_segments(length, 256) for length in range(1 << 17)]
    assert counts[0] == 0
    assert all(later - count in (0, 1) for count, later in itertools.pairwise(counts))
    ends = [length for length, (count, later) in enumerate(itertools.pairwise(counts)) if count < later]
    sizes = [end - start for start, end in itertools.pairwise(ends)]
    assert [(size, len(list(group))) for size, group in itertools.groupby(sizes)] == [(256, 32), (1024, 56), (4096, 15)]


@pytest.mark.slow
@pytest.mark.parametrize("window", [0, 3700])
def test_chunks_and_decode_rows_have_the_same_bits_in_all_segments(monkeypatch, bit_contract, small_segments, window):
    kernel_sets.use(monkeypatch, "reference")  # which writes a cache fast, and has the same layout
    made = scene([LENGTH], num_heads=1, num_kv_heads=1, head_dim=128)
    kernel_sets.use(monkeypatch, "gpu")
    chunks = [(0, 508, 8), (0, 4092, 8), (0, LENGTH - 2, 2)]
    form = {"scale": 0.2, "window": window}
    outs = made.attend(chunks, **form)
    rows = [(0, at, 1) for at in (511, 512, 4095, 4096, LENGTH - 1)]
    decoded = torch.cat(made.attend(rows, **form))
    assert torch.equal(decoded, torch.cat([outs[0][3:5], outs[1][3:5], outs[2][1:]]))
    assert relative_rms(decoded, torch.cat([naive(made, row, **form) for row in rows])) < NEAR[torch.float32]


@pytest.fixture
def share_out(monkeypatch):
    """Lets so many processors take a call's work, their programs one after the other in an order by chance."""
    from triton.runtime import interpreter

    set_place, order = interpreter.interpreter_builder.set_grid_idx, []

    def set_other(x, y, z):
        if x == 0 and not y and not z:
            order[:] = random.Random(0).sample(range(interpreter.interpreter_builder.grid_dim[0]),
                                               interpreter.interpreter_builder.grid_dim[0])
        set_place(order[x], y, z)

    def share(number):
        monkeypatch.setattr(interpreter.interpreter_builder, "set_grid_idx", set_other)
        monkeypatch.setattr(gpu_form, "_num_processors", lambda device: number)
        gpu_form.form_of.cache_clear()

    yield share
    gpu_form.form_of.cache_clear()


@pytest.mark.skipif(kernel_sets.HAS_GPU, reason="how a GPU runs programs is for it to choose")
@pytest.mark.parametrize(("form", "segment", "dtype", "cache_dtype"), [
    ("all", 16, torch.float32, torch.float32),
    *(pytest.param(form, 64, torch.bfloat16, cache_dtype, marks=pytest.mark.slow)
      for form, cache_dtype in (("plain", torch.bfloat16), ("window", torch.float8_e4m3fn), ("all", torch.int8)))])
def test_who_takes_a_segment_changes_no_bits(monkeypatch, bit_contract, share_out, form, segment, dtype, cache_dtype):
    """Whole sequences, runs of segments that begin and end within one, and single segments, merged by whoever is last;
    twice, for a launch has to leave its counters behind as it found them."""
    lengths = [1, 3 * segment + 3, 7, segment + 1, 2 * segment]
    kernel_sets.use(monkeypatch, "reference")
    made = scene(lengths, num_heads=6, head_dim=128, dtype=dtype, cache_dtype=cache_dtype)
    kernel_sets.use(monkeypatch, "gpu")
    monkeypatch.setattr(gpu_form, "SEGMENT", segment)
    counts = [1, 1, 2, 1, 1]
    parts = [(i, length - count, count) for i, (length, count) in enumerate(zip(lengths, counts, strict=True))]
    numbers = form_of(form, num_heads=6, scale=0.1)
    share_out(1)
    expected = torch.cat(made.attend(parts, **numbers))
    exact = torch.cat([naive(made, part, **numbers) for part in parts])
    assert relative_rms(expected, exact) < (NEAR[dtype] if dtype == cache_dtype else 5e-3)
    for number in (2, 9, 9):
        share_out(number)
        assert torch.equal(torch.cat(made.attend(parts, **numbers)), expected)
    assert torch.equal(made.attend(parts[1:2], **numbers)[0], expected[1:2])
