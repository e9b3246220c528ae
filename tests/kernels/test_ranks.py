"""The places of given tokens among all."""

import pytest
import torch

from penstock.kernels.prompt_logprobs import prompt_logprobs
from penstock.kernels.ranks import ranks
from tests.kernel_sets import CHECKED_SETS, few
from tests.kernels.compiled import poison, threads
from tests.kernels.test_prompt_logprobs import VOCABULARIES, batch


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_places_in_the_order(vocabulary, kernel_set):
    """Of the likeliest first, of equal ones the lowest id."""
    logits, targets, _ = batch(vocabulary, few(kernel_set, 40, 8))
    order = logits.sort(dim=1, descending=True, stable=True).indices
    assert ranks(logits, targets).tolist() == [1 + row.index(target) for row, target in zip(
        order.tolist(), targets.tolist(), strict=True)]


def test_those_of_top_logprobs(kernel_set):
    logits, _, _ = batch(129, 8)
    _, top = prompt_logprobs(logits, torch.zeros(8, dtype=torch.int64), torch.full((8,), 5))
    for place in range(5):
        is_there = top.ids[:, place] >= 0
        assert set(ranks(logits, top.ids[:, place].clamp(min=0))[is_there].tolist()) == {place + 1}


def test_poisoned_memory_and_any_number_of_threads(cpu_kernels, monkeypatch):
    logits, targets, _ = batch(40001, num_rows=8)
    expected = [ranks(logits[row : row + 1], targets[row : row + 1]).item() for row in range(8)]
    poison(monkeypatch)
    for count in (1, 2, 3):
        with threads(count):
            assert ranks(logits, targets).tolist() == expected


def test_what_is_no_number(kernel_set):
    logits = torch.zeros(3, 100)
    logits[0, 70] = torch.nan
    logits[1, 50:60] = torch.nan
    logits[2] = -torch.inf
    assert ranks(logits, torch.full((3,), 70)).tolist() == [1, 61, 71]
    assert ranks(torch.empty(0, 64), torch.empty(0, dtype=torch.int64)).shape == (0,)


def test_errors_name_the_shapes(kernel_set):
    logits, zeros = torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"ranks: logits \[2, 8\] has dtype torch.float64"):
        ranks(logits.double(), zeros)
    with pytest.raises(ValueError, match=r"ranks: targets has shape \[1\], expected \[2\]"):
        ranks(logits, zeros[:1])


@pytest.mark.parametrize("kernel_set", CHECKED_SETS, indirect=True)
def test_errors_name_the_targets(kernel_set):
    for targets in ([0, 8], [-1, 7]):
        with pytest.raises(ValueError, match=rf"ranks: targets are between {min(targets)} and {max(targets)}"):
            ranks(torch.zeros(2, 8), torch.tensor(targets))
