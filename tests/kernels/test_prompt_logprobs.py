"""The log-probabilities of given tokens."""

import pytest
import torch

from penstock.kernels.prompt_logprobs import prompt_logprobs, reference
from penstock.kernels.sample import sample
from tests.kernel_sets import CHECKED_SETS, HAS_GPU, few
from tests.kernels.compiled import poison, threads
from tests.kernels.sampling import arguments, told

VOCABULARIES = (1, 7, 16, 129, 1001, 8192, *[128256] * HAS_GPU)


def batch(vocabulary, num_rows=40):
    """Logits of all sizes, some with holes and ties; targets; and how many likeliest tokens each row is to tell."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = 3 * torch.randn(num_rows, vocabulary, generator=generator)
    logits[1::4] = (2 * logits[1::4]).round() / 2
    holes = torch.rand(logits[2::4, 1:].shape, generator=generator) < 0.7
    logits[2::4, 1:] = logits[2::4, 1:].masked_fill(holes, -torch.inf)
    logits[3::4] *= 12
    targets = torch.randint(0, vocabulary, (num_rows,), generator=generator)
    return logits, targets, torch.arange(num_rows) % 7


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_log_softmax(vocabulary, kernel_set):
    num_rows = few(kernel_set, 40, 7)
    logits, targets, top_n = batch(vocabulary, num_rows)
    logprobs, top = prompt_logprobs(logits, targets, top_n)
    expected = torch.log_softmax(logits.double(), dim=1)
    assert torch.allclose(logprobs.double(), expected.gather(1, targets[:, None])[:, 0], rtol=1e-6, atol=1e-6)
    assert (logprobs.dtype, top.ids.shape) == (torch.float32, (num_rows, 6))
    for row, pairs in enumerate(told(top)):
        best = expected[row].sort(descending=True, stable=True)
        count = min(int(top_n[row]), int(best.values.isfinite().sum()))
        assert [token for token, _ in pairs] == best.indices[:count].tolist()
        assert [logprob for _, logprob in pairs] == pytest.approx(best.values[:count].tolist(), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_as_the_reference_in_poisoned_memory(vocabulary, cpu_kernels, monkeypatch):
    logits, targets, top_n = batch(vocabulary)
    expected, expected_top = reference.prompt_logprobs(logits, targets, top_n, int(top_n.max()))
    poison(monkeypatch)
    logprobs, top = prompt_logprobs(logits, targets, top_n)
    assert torch.allclose(logprobs, expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(top.ids, expected_top.ids)
    assert torch.allclose(top.logprobs, expected_top.logprobs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("vocabulary", [129, 40001])
def test_a_row_has_the_same_bits_alone_and_with_any_number_of_threads(vocabulary, cpu_kernels):
    logits, targets, top_n = batch(vocabulary, num_rows=8)
    results = []
    for count in (1, 2, 3):
        for size in (1, 2, 8):
            with threads(count):
                parts = [prompt_logprobs(*(x[i : i + size] for x in (logits, targets, top_n)))
                         for i in range(0, 8, size)]
            logprobs = [logprob for part, _ in parts for logprob in part.tolist()]
            results.append((logprobs, [row for _, top in parts for row in told(top)]))
    assert results[1:] == results[:1] * 8


@pytest.mark.slow_in_interpreter
def test_the_bits_of_a_sampled_token_without_parameters(kernel_set):
    num_rows = few(kernel_set, 40, 8)
    logits, *_ = batch(1001, num_rows)
    sampled = sample(*arguments(logits, [{"do_sample": False, "top_n": 5}] * num_rows))
    logprobs, top = prompt_logprobs(logits, sampled.ids, torch.full((num_rows,), 5))
    assert torch.equal(logprobs, sampled.logprobs)
    assert told(top) == told(sampled.top_logprobs)


def test_what_is_no_number_is_no_probability(kernel_set):
    logits = torch.zeros(4, 100)
    logits[0, 70] = torch.inf
    logits[1, 50:] = torch.nan
    logits[2] = -torch.inf
    logprobs, top = prompt_logprobs(logits, torch.full((4,), 70), torch.full((4,), 2))
    assert logprobs[:3].isnan().all()
    assert [len(row) for row in told(top)] == [0, 0, 0, 2]


def test_no_rows(kernel_set):
    none = torch.empty(0, dtype=torch.int64)
    logprobs, top = prompt_logprobs(torch.empty(0, 64), none, none)
    assert (logprobs.shape, top.ids.shape) == ((0,), (0, 0))


def test_errors_name_the_shapes(kernel_set):
    logits, zeros = torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"prompt_logprobs: logits \[2, 8\] has dtype torch.float64"):
        prompt_logprobs(logits.double(), zeros, zeros)
    with pytest.raises(ValueError, match=r"prompt_logprobs: targets has shape \[1\], expected \[2\]"):
        prompt_logprobs(logits, zeros[:1], zeros)


@pytest.mark.parametrize("kernel_set", CHECKED_SETS, indirect=True)
def test_errors_name_the_targets(kernel_set):
    logits, zeros = torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64)
    for targets in ([0, 8], [-1, 7]):
        with pytest.raises(ValueError, match=rf"targets are between {min(targets)} and {max(targets)}, the vocabulary"):
            prompt_logprobs(logits, torch.tensor(targets), zeros)
