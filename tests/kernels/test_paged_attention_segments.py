"""The segments of the GPU's attention, which grow with the position: their bounds, and bits and values across them."""

import itertools

import pytest
import torch

from penstock.kernels.paged_attention import gpu_form
from penstock.kernels.paged_attention.gpu_tile import count_segments
from tests import kernel_sets
from tests.kernels.accuracy import relative_rms
from tests.kernels.paging import scene
from tests.kernels.test_paged_attention import NEAR, naive

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
