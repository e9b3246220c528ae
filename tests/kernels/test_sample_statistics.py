"""Samples have the distribution they claim: 20,000 of each kind against the softmax, by a chi-square test."""

import pytest
import torch
from scipy.stats import chisquare, kstest

from tests.kernel_sets import FAST_SETS
from tests.kernels.sampling import draw
from tests.kernels.warping import warp

pytestmark = pytest.mark.parametrize("kernel_set", [
    FAST_SETS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in FAST_SETS[1:-1]), FAST_SETS[-1],
], indirect=True)
"""The quick suite has the kernels that serve here, and the reference; that the others draw the same, others test."""

NUM_SAMPLES = 20_000
LOGITS = torch.linspace(-2, 2.5, 48)[torch.randperm(48, generator=torch.Generator().manual_seed(7))]
KINDS = {
    "plain": {},
    "temperature": {"temperature": 0.6},
    "top-k": {"top_k": 11},
    "top-p": {"top_p": 0.7},
    "typical-p": {"typical_p": 0.5},
    "min-p": {"min_p": 0.1, "temperature": 1.3},
    "biases": {"bias": ((3, 2.0), (4, -torch.inf), (5, -1.5))},
    "mask": {"allowed": range(5, 40, 3)},
    "everything": {"temperature": 1.7, "top_k": 30, "top_p": 0.9, "typical_p": 0.8, "repetition_penalty": 1.4},
}


def p_value(ids, warped):
    """Of the chi-square test of samples against softmax(warped). Tokens expected fewer than 5 times count as one."""
    counts = torch.bincount(ids, minlength=len(warped)).double()
    expected = torch.softmax(warped, dim=0) * len(ids)
    assert counts[warped == -torch.inf].sum() == 0, "a token outside the cutoffs was sampled"
    rare = expected < 5
    if expected[rare].sum() > 0:
        counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
        expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    else:
        counts, expected = counts[~rare], expected[~rare]
    return chisquare(counts.numpy(), expected.numpy()).pvalue


@pytest.mark.parametrize("kind", KINDS)
def test_the_positions_of_one_seed(kind, kernel_set):
    row, history = {**KINDS[kind], "seed": 1}, [3, 4, 3, 40] if "repetition_penalty" in KINDS[kind] else []
    rows = [{**row, "position": position} for position in range(NUM_SAMPLES)]
    ids, _ = draw(LOGITS.expand(NUM_SAMPLES, -1).contiguous(), rows, [history] * NUM_SAMPLES)
    warped = warp(LOGITS, row, history)
    cut = {"plain": 0, "temperature": 0, "top-k": 37, "biases": 1, "mask": 36}.get(kind)
    assert (warped == -torch.inf).sum() == cut if cut is not None else (warped == -torch.inf).any()
    assert p_value(ids, warped) > 0.001


@pytest.mark.slow
def test_no_seed_is_better_than_another(kernel_set):
    """One seed in a thousand fails the test above by chance; over many seeds the p-values are uniform."""
    logits, rows = LOGITS.expand(4000, -1).contiguous(), [{"position": position} for position in range(4000)]
    samples = (draw(logits, [{**row, "seed": seed} for row in rows])[0] for seed in range(60))
    p_values = [p_value(ids, LOGITS.double()) for ids in samples]
    assert kstest(p_values, "uniform").pvalue > 0.001


def test_no_branch_is_better_than_another(kernel_set):
    """And their answers to one prompt have nothing to do with each other."""
    rows = [{"position": index // 2, "branch": index % 2} for index in range(NUM_SAMPLES)]
    logits = torch.tensor([0.5, 0.0, -0.5, 1.0])
    pairs = torch.log_softmax(logits.double(), dim=0)
    ids, _ = draw(logits.expand(NUM_SAMPLES, -1).contiguous(), rows)
    assert p_value(4 * ids[0::2] + ids[1::2], (pairs[:, None] + pairs[None]).flatten()) > 0.001


def test_the_first_token_of_many_seeds(kernel_set):
    ids, _ = draw(LOGITS.expand(NUM_SAMPLES, -1).contiguous(), [{"seed": seed} for seed in range(NUM_SAMPLES)])
    assert p_value(ids, LOGITS.double()) > 0.001


def test_neighbouring_positions_and_seeds_are_independent(kernel_set):
    """Pairs of samples have the product of their distributions."""
    logits = torch.tensor([0.5, 0.0, -0.5, 1.0])
    pairs = torch.log_softmax(logits.double(), dim=0)
    pairs = (pairs[:, None] + pairs[None]).flatten()
    for name in ("position", "seed"):
        ids, _ = draw(logits.expand(NUM_SAMPLES, -1).contiguous(), [{name: i} for i in range(NUM_SAMPLES)])
        assert p_value(4 * ids[0::2] + ids[1::2], pairs) > 0.001
        assert p_value(4 * ids[1:-1:2] + ids[2::2], pairs) > 0.001
