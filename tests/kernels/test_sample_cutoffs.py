"""The search for cutoffs on a GPU: what its bounds keep is what the reference keeps."""

import random

import pytest
import torch

from penstock.kernels import dispatch, softmax_gpu
from penstock.kernels.sample import gpu_cutoffs, gpu_plan, reference
from penstock.kernels.sample.gpu_adjust import Scores
from penstock.kernels.sample.gpu_cutoffs import Cutoffs
from penstock.kernels.sample.parameters import find_passes
from tests.kernel_sets import few
from tests.kernels.compiled import poison
from tests.kernels.sampling import arguments, columns
from tests.on_gpu import moved

SHAPES = {
    "normal": lambda x: 3 * x,
    "steep": lambda x: 12 * x,
    "flat": lambda x: 0.1 * x,
    "ties": lambda x: (2 * x).round() / 2,
    "equal": lambda x: 0 * x + 0.25,
    "ascending": lambda x: x.sort().values,
    "descending": lambda x: x.sort(descending=True).values,
    "holes": lambda x: x.where(torch.arange(len(x)) % 7 == 3, -torch.inf),
    "one left": lambda x: x.where(torch.arange(len(x)) == len(x) - 1, -torch.inf),
    "far": lambda x: (x - 1e4).where(torch.arange(len(x)) != len(x) // 2, 0.0),
    "large": lambda x: 1e30 * x,
}
ROWS = [
    {"top_k": 1}, {"top_k": 9}, {"top_k": 90}, {"top_p": 0.9}, {"top_p": 1e-6}, {"top_p": 0.9999999}, {"min_p": 0.05},
    {"typical_p": 0.9}, {"typical_p": 0.2, "min_p": 0.7}, {"top_k": 40, "top_p": 0.8, "temperature": 1.7},
    {"top_k": 120, "top_p": 0.95, "typical_p": 0.7, "min_p": 0.01, "temperature": 0.8},
    {"top_p": 0.3, "typical_p": 0.5},
]

PAIRS = [
    ("ties", ROWS[1]), ("flat", ROWS[2]), ("normal", ROWS[3]), ("equal", ROWS[4]), ("ascending", ROWS[5]),
    ("descending", ROWS[6]), ("holes", ROWS[7]), ("one left", ROWS[1]), ("flat", ROWS[9]), ("normal", ROWS[10]),
    ("far", ROWS[11]), ("large", ROWS[0])]


@pytest.fixture
def small_parts(monkeypatch):
    """Rows of 180 tokens have parts and blocks, and lists more than one piece, as rows of 128k do."""
    monkeypatch.setattr(softmax_gpu, "PART", 64)
    monkeypatch.setattr(softmax_gpu, "BLOCK", 16)
    monkeypatch.setattr(gpu_cutoffs, "LIST", 128)


def found(logits, rows):
    """The search on the device that there is, after it."""
    parts = moved(arguments(logits, rows), str(dispatch.device()))
    cutoffs = Cutoffs(Scores(*parts), parts[1])
    cutoffs.find()
    return cutoffs


def assert_keeps_what_the_reference_keeps(logits, rows):
    cutoffs = found(logits, rows)
    lowest, middle, rest, farthest = (bound[:, None] for bound in cutoffs.scores.bounds.cpu().unbind(1))
    kept = (logits >= lowest) & ((logits - middle - rest).abs() <= farthest) & (logits > -torch.inf)
    _, parameters, *_ = arguments(logits, rows)
    expected = reference._warp(logits.double(), parameters, torch.arange(len(rows))) > -torch.inf
    for own, other, row in zip(kept, expected, rows, strict=True):
        assert torch.equal(own, other), row


def shaped(name, count, vocabulary, seed=0):
    x = torch.randn(count, vocabulary, generator=torch.Generator().manual_seed(seed))
    return torch.stack([SHAPES[name](row) for row in x])


def test_it_keeps_what_the_reference_keeps(gpu_kernels, small_parts, monkeypatch):
    """In rows of which some have a bound by the blocks' largest scores, and some need pivots."""
    poison(monkeypatch)
    states, search = set(), Cutoffs._search

    def watched(self, mode):
        states.update(self._plans[:, gpu_plan.STATE.value].tolist())
        search(self, mode)

    monkeypatch.setattr(Cutoffs, "_search", watched)
    logits = torch.cat([shaped(name, 1, 180, seed) for seed, (name, _) in enumerate(PAIRS)])
    assert_keeps_what_the_reference_keeps(logits, [row for _, row in PAIRS])
    assert {gpu_plan.WIDE.value, gpu_plan.NARROW.value} <= states


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_every_cutoff_of_every_shape(shape, gpu_kernels, small_parts):
    """But typical-p among large numbers: the surprises are all equal then, as far as float64 can tell."""
    for vocabulary in (180, 47):
        rows = [row for row in ROWS if shape != "large" or "typical_p" not in row]
        assert_keeps_what_the_reference_keeps(shaped(shape, len(rows), vocabulary, 3), rows)


@pytest.mark.slow
def test_rows_of_several_whole_parts(gpu_kernels):
    choose = random.Random(4)
    vocabulary = 2 * softmax_gpu.PART + 600
    for shape in ("normal", "flat", "ascending", "ties"):
        count = few(gpu_kernels, 60, 6)
        rows = [choose.choice(ROWS) | {"temperature": choose.choice([0.5, 1.0])} for _ in range(count)]
        assert_keeps_what_the_reference_keeps(shaped(shape, len(rows), vocabulary), rows)


def test_a_row_pays_only_for_what_it_asks(gpu_kernels, monkeypatch):
    """Nothing is read, written or bounded of rows that have no cutoff or are greedy."""
    poison(monkeypatch)
    rows = [{}, {"top_k": 3}, {"do_sample": False, "top_p": 0.5}]
    cutoffs = found(shaped("normal", 3, 40), rows)
    assert cutoffs.largest.isnan().all(dim=1).tolist() == [True, False, True]
    everything = [-torch.inf, 0.0, 0.0, torch.inf]
    assert cutoffs.scores.bounds[::2].tolist() == [everything, everything]


def test_which_passes_some_row_has():
    assert find_passes(columns([{}, {"of_logprobs": True, "do_sample": False}])) == {"of_logprobs"}
    row = {"top_k": 5, "top_p": 0.9, "typical_p": 0.9, "min_p": 0.1}
    assert find_passes(columns([{}, {**row, "do_sample": False}])) == frozenset()
    for name, value in row.items():
        table = columns([{}, {name: value}])
        assert find_passes(table) == find_passes({key: column.numpy() for key, column in table.items()}) == {name}
