"""Sampling on a GPU against the reference: in parts, in poisoned memory, and with arguments that do not fit."""

import random

import pytest
import torch

from penstock.kernels import softmax_gpu
from penstock.kernels.sample import gpu, sample
from penstock.kernels.sample.philox import philox
from penstock.kernels.sample.ragged import is_penalised
from tests.kernel_sets import HAS_GPU, few
from tests.kernels.compiled import poison
from tests.kernels.sampling import arguments, draw, told
from tests.kernels.test_sample_compiled import assert_as_the_reference, random_logits, random_row
from tests.kernels.test_sample_statistics import LOGITS, p_value


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("vocabulary", [1, 17, 129, 9001])
def test_random_rows_as_the_reference(vocabulary, gpu_kernels, monkeypatch):
    poison(monkeypatch)
    choose, generator = random.Random(vocabulary), torch.Generator().manual_seed(vocabulary)
    num_rows = few(gpu_kernels, 400, 8 if vocabulary < 1000 else 5)
    rows = [random_row(choose, vocabulary) for _ in range(num_rows)]
    histories = [[choose.randrange(vocabulary) for _ in range(choose.choice((0, 1, 50)))] for _ in rows]
    assert assert_as_the_reference(random_logits(generator, num_rows, vocabulary), rows, histories) <= 1


@pytest.mark.slow
def test_many_random_rows_as_the_reference(gpu_kernels):
    choose, generator = random.Random(8), torch.Generator().manual_seed(8)
    num_rows = few(gpu_kernels, 100, 50)
    for vocabulary in (2, 16, 250, 1001):
        rows = [random_row(choose, vocabulary) for _ in range(num_rows)]
        histories = [[choose.randrange(vocabulary) for _ in range(choose.choice((0, 1, 50)))] for _ in rows]
        assert assert_as_the_reference(random_logits(generator, num_rows, vocabulary), rows, histories) <= 1


@pytest.mark.parametrize("temperature", [1e-45, 0.01, 1e30])
def test_temperatures_of_any_size(temperature, gpu_kernels):
    rows = [{"temperature": temperature, **cutoffs} for cutoffs in ({}, {"top_k": 40}, {"top_p": 0.9})]
    assert_as_the_reference(torch.randn(3, 200, generator=torch.Generator().manual_seed(2)), rows)


def test_logits_of_any_size(gpu_kernels):
    """Cutoffs whose boundary lies far below the best, or where all are equal."""
    normal = torch.randn(3, 200, generator=torch.Generator().manual_seed(4))
    far = normal - 1e4
    far[:, 7] = 0
    rows = [{"top_k": 150}, {"top_p": 0.5}, {"top_k": 100, "top_p": 0.9}]
    for logits in (1e30 * normal, 1e-30 * normal, far, torch.full((3, 200), 0.25)):
        assert_as_the_reference(logits, rows)


def test_words_of_all_parts(gpu_kernels):
    """Among equal logits the largest word wins, in whichever part of the row it is."""
    vocabulary, positions = 2 * softmax_gpu.PART + 77, (0, 2**32 - 1)
    token, zero = torch.arange(vocabulary)[None], torch.zeros(1, 1, dtype=torch.int64)
    words = philox((token, torch.tensor(positions)[:, None], zero + 5, zero), (zero + 0xFFFFFFFE, zero + 0xFFFFFFFF))[0]
    ids, _ = draw(torch.full((2, vocabulary), -7.5), [{"seed": -2, "position": at, "branch": 5} for at in positions])
    assert torch.equal(ids, words.argmax(dim=1))


def test_samples_have_the_distribution_they_claim(gpu_kernels):
    logits, count = LOGITS[:4], few(gpu_kernels, 20_000, 60)
    ids, _ = draw(logits.expand(count, -1).contiguous(), [{"position": position} for position in range(count)])
    assert p_value(ids, logits.double()) > 0.001


def test_what_does_not_fit_is_left_out(gpu_kernels, monkeypatch):
    """A GPU would have to wait to see it. Nothing is read or written outside of what there is."""
    monkeypatch.setattr(gpu, "_check", lambda *_: None)
    logits = torch.randn(2, 40, generator=torch.Generator().manual_seed(3))
    row = {"repetition_penalty": 1.5, "frequency_penalty": 0.5, "top_n": 40, "do_sample": False}
    bias = ((2, 1.0), (5, -2.0))
    good = sample(*arguments(logits, [{**row, "bias": bias}, {**row, "bias": bias}], [[3, 4, 3], [7, 3, 9]]))
    wrong = ((2, 1.0), (10**12, 3.0), (5, -2.0), (-1, 4.0))
    parts = arguments(logits, [{**row, "bias": bias}, {**row, "bias": wrong, "mask": 7}], [[3, 4, 3], [7, 3, 9]])
    bad = sample(*parts)
    assert told(bad.top_logprobs) == told(good.top_logprobs)
    history = arguments(logits, [row, row], [[3, 4, 3], [-5, 10**12, 40]])[2]
    bad = sample(*parts[:2], history, *parts[3:])
    unpenalised = sample(*arguments(logits, [{**row, "bias": bias}, {"bias": bias, "top_n": 40, "do_sample": False}],
                                    [[3, 4, 3], []]))
    assert told(bad.top_logprobs) == told(unpenalised.top_logprobs)
    history.offsets[2] = 10**9
    assert told(sample(*parts[:2], history, *parts[3:]).top_logprobs) == told(unpenalised.top_logprobs)


@pytest.mark.skipif(HAS_GPU, reason="the values are looked at on a processor only")
def test_a_history_that_nothing_reads_may_hold_anything(gpu_kernels):
    parts = arguments(torch.zeros(1, 8), [{}], [[99]])
    assert not is_penalised(*parts[1:3]).any()
    assert 0 <= sample(*parts).ids.item() < 8
