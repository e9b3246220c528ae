"""The compiled sampling against the reference: what it keeps, what it chooses, and that threads change nothing."""

import random

import pytest
import torch

from kernels.sample import SampleParameters, reference
from tests.kernels.compiled import poison, threads
from tests.kernels.sampling import columns, draw

TEMPERATURES = (0.3, 0.8, 1.0, 1.0, 1.7)
VOCABULARIES = (1, 2, 3, 7, 15, 16, 17, 31, 64, 127, 128, 129, 250, 1000, 1001, 4099)


def random_row(choose, vocabulary):
    """Parameters that often have one cutoff and sometimes all. The penalties make no ties when rounded to float32."""
    row = {"seed": choose.getrandbits(64) - 2**63, "position": choose.randrange(2**32)}
    row["temperature"] = choose.choice(TEMPERATURES)
    if choose.random() < 0.4:
        row["top_k"] = choose.randint(1, vocabulary)
    if choose.random() < 0.4:
        row["top_p"] = choose.choice((1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, choose.random() or 1.0))
    if choose.random() < 0.3:
        row["typical_p"] = choose.choice((1e-6, 0.2, 0.9, 0.95, choose.random() or 1.0))
    if choose.random() < 0.2:
        row["repetition_penalty"] = choose.choice((0.75, 1.25))
    if choose.random() < 0.2:
        row["frequency_penalty"] = choose.choice((-0.5, 1.5))
    if choose.random() < 0.1:
        row["do_sample"] = False
    return row


def random_logits(generator, num_rows, vocabulary):
    """Normal logits; of every four rows one with many ties, one with holes and one that is steep."""
    logits = 2.5 * torch.randn(num_rows, vocabulary, generator=generator)
    logits[1::4] = (2 * logits[1::4]).round() / 2
    holes = torch.rand(logits[2::4].shape, generator=generator) < 0.7
    holes[:, 0] = False
    logits[2::4] = logits[2::4].masked_fill(holes, -torch.inf)
    logits[3::4] *= 12
    return logits


def assert_as_the_reference(logits, rows, histories=None) -> int:
    """Equal ids, but where the reference hardly prefers one to the other; and the same log-probabilities.

    Returns how many ids are different.
    """
    parameters = SampleParameters(**columns(rows))
    histories = histories or [[] for _ in rows]
    ids = torch.tensor([token for history in histories for token in history], dtype=torch.int64)
    offsets = torch.tensor([0, *(len(history) for history in histories)]).cumsum(0)
    expected, expected_logprobs = reference.sample(logits, parameters, ids, offsets)
    chosen, logprobs = draw(logits, rows, histories)

    different = (chosen != expected).nonzero()[:, 0]
    if len(different):
        scores = logits.double()
        reference._penalise(scores, parameters, ids, offsets)
        for row in different.tolist():
            only = torch.tensor([row])
            race = scores[only]
            if parameters.do_sample[row]:
                noise = reference._gumbel(parameters.seed[only], parameters.position[only], logits.shape[1])
                race = reference._warp(race, parameters, only) + noise
            lead, other = race[0, expected[row]], race[0, chosen[row]]
            assert lead - other < 1e-5, f"{rows[row]}: {chosen[row]} instead of {expected[row]}"
    same = chosen == expected
    error = (logprobs - expected_logprobs)[same].abs()
    assert error.max() <= 1e-5, rows[int(same.nonzero()[error.argmax()])]
    return len(different)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_random_rows_as_the_reference(vocabulary, cpu_kernels, monkeypatch):
    poison(monkeypatch)
    choose, generator = random.Random(vocabulary), torch.Generator().manual_seed(vocabulary)
    num_rows = 400 if vocabulary < 1000 else 120
    rows = [random_row(choose, vocabulary) for _ in range(num_rows)]
    histories = [[choose.randrange(vocabulary) for _ in range(choose.choice((0, 1, 50)))] for _ in rows]
    assert assert_as_the_reference(random_logits(generator, num_rows, vocabulary), rows, histories) <= 1


@pytest.mark.slow
def test_rows_of_a_real_size_as_the_reference(cpu_kernels):
    choose, generator = random.Random(5), torch.Generator().manual_seed(5)
    for _ in range(20):
        rows = [random_row(choose, 49152) for _ in range(40)]
        assert assert_as_the_reference(random_logits(generator, 40, 49152), rows) <= 1


def kept_weight(logits, row):
    """By a sort, in Python: the sum of e^score over what one cutoff keeps, and the tokens."""
    scores = [logit / row.get("temperature", 1.0) for logit in logits]
    order = sorted(range(len(scores)), key=lambda token: -scores[token])
    boundary = order[row.get("top_k", len(scores)) - 1]
    if "top_p" in row:
        share = torch.tensor(row["top_p"]).item() * sum(2.718281828459045**score for score in scores)
        for boundary in order:
            share -= 2.718281828459045 ** scores[boundary]
            if share <= 0:
                break
    kept = {token for token, score in enumerate(scores) if score >= scores[boundary]}
    return sum(2.718281828459045 ** scores[token] for token in kept), kept


@pytest.mark.parametrize("step", [1.0, 0.125, 1e-3])
def test_every_top_k_and_many_top_p_keep_what_a_sort_keeps(step, cpu_kernels):
    """The log-probability of the chosen token tells how much was kept; steps make ties, and shares end inside them."""
    vocabulary = 77
    logits = (torch.randn(vocabulary, generator=torch.Generator().manual_seed(3)) / step).round() * step
    rows = [{"top_k": k, "position": k} for k in range(1, vocabulary + 2)]
    rows += [{"top_p": i / 200 + 0.00217, "position": i, "temperature": 0.5 + i % 3} for i in range(199)]
    ids, logprobs = draw(logits.expand(len(rows), -1).contiguous(), rows)
    for row, chosen, logprob in zip(rows, ids.tolist(), logprobs.double(), strict=True):
        total, kept = kept_weight(logits.tolist(), {**row, "top_k": min(vocabulary, row.get("top_k", vocabulary))})
        assert chosen in kept
        score = logits[chosen].double() / row.get("temperature", 1.0)
        assert abs(logprob - (score - torch.tensor(total).double().log())) < 1e-5, row


@pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-20, 1e-6, 0.01, 100.0, 1e6, 1e30, 3e38])
def test_temperatures_of_any_size(temperature, cpu_kernels):
    """But typical-p at the highest: the surprises are all equal then, as far as float64 can tell."""
    logits = random_logits(torch.Generator().manual_seed(2), 60, 500)
    typical = {"typical_p": 0.8} if temperature < 1e9 else {}
    cutoffs = ({}, {"top_k": 40}, {"top_p": 0.9}, typical, {"top_k": 300, "top_p": 0.7, **typical})
    rows = [{"temperature": temperature, "position": i, **cutoffs[i % len(cutoffs)]} for i in range(60)]
    assert_as_the_reference(logits, rows)


def test_logits_of_any_size(cpu_kernels):
    """Cutoffs whose boundary lies where all tokens fall into one bucket: far below the best, or all at one place.

    But no typical-p among tiny logits, for the same reason as above.
    """
    generator = torch.Generator().manual_seed(4)
    normal = torch.randn(6, 3000, generator=generator)
    large, small = 1e30 * normal, 1e-30 * normal
    far = normal - 1e4
    far[:, 7] = 0
    equal = torch.full((6, 3000), 0.25)
    rows = [{"top_k": 2000}, {"top_p": 0.5}, {"top_k": 1500, "top_p": 0.9}, {}, {"typical_p": 0.5}, {"typical_p": 0.99}]
    for logits in (large, far, -large, equal):
        assert_as_the_reference(logits, rows)
    assert_as_the_reference(small[:4], rows[:4])


def test_slopes(cpu_kernels):
    """Each token likelier than the one before it, or less likely: as many leads, or as few, as can be."""
    slopes = torch.tensor([1e-4, 1e-2, 1.0, 30.0])
    up = torch.arange(5000.0)[None] * torch.cat([slopes, -slopes])[:, None]
    for position in range(3):
        assert_as_the_reference(up, [{"position": position, "temperature": 0.7}] * 8)


@pytest.mark.parametrize("vocabulary", [100, 40001])
def test_threads_change_no_bits(vocabulary, cpu_kernels):
    """Few rows share their vocabulary among the threads, many are shared out whole."""
    choose, generator = random.Random(6), torch.Generator().manual_seed(6)
    rows = [random_row(choose, vocabulary) for _ in range(24)]
    histories = [[choose.randrange(vocabulary) for _ in range(30)] for _ in rows]
    logits = random_logits(generator, len(rows), vocabulary)
    results = []
    for count in (1, 2, 3):
        for size in (1, 2, 24):
            with threads(count):
                parts = [
                    draw(logits[i : i + size], rows[i : i + size], histories[i : i + size])
                    for i in range(0, len(rows), size)
                ]
            results.append([torch.cat(column) for column in zip(*parts, strict=True)])
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))
