"""The compiled sampling against the reference: what it keeps, what it chooses, and that threads change nothing."""

import random

import pytest
import torch

from penstock.kernels.sample import reference, sample
from tests.kernels.compiled import poison, threads
from tests.kernels.sampling import arguments, draw, told

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
        row["share_penalty"] = choose.choice((-0.5, 1.5))
    if choose.random() < 0.2:
        row["frequency_penalty"] = choose.choice((-0.1234, 0.4321))
        row["presence_penalty"] = choose.choice((0.0, 0.3217))
        row["prompt_length"] = choose.choice((0, 10, 49, 60))
    if choose.random() < 0.2:
        row["min_p"] = choose.choice((0.02, 0.1, 0.7, 1.0, 3.0))
    if choose.random() < 0.2:
        row["top_n"] = choose.randint(1, 25)
    if choose.random() < 0.2:
        row["branch"] = choose.randrange(2**32)
    if choose.random() < 0.2:
        row["allowed"] = choose.sample(range(vocabulary), choose.randint(1, vocabulary))
    if choose.random() < 0.2:
        biased = choose.sample(range(vocabulary), min(vocabulary, choose.randint(1, 9)))
        row["bias"] = [(token, choose.choice((-torch.inf, choose.gauss(0, 2)))) for token in biased]
    if choose.random() < 0.2:
        row |= {"do_sample": False, "of_logprobs": choose.random() < 0.5}
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
    parts = logits, parameters, _, _, _ = arguments(logits, rows, histories)
    expected = reference.sample(*parts, int(parts[1].top_n.max()))
    sampled = sample(*parts)

    scores = logits.double()
    reference._normalise(scores, parameters)
    scores = reference._adjust(scores, *parts[1:])
    is_same = sampled.ids == expected.ids
    for row in (~is_same).nonzero()[:, 0].tolist():
        only = torch.tensor([row])
        race = scores[only]
        if parameters.do_sample[row]:
            seed, position, branch = parameters.seed[only], parameters.position[only], parameters.branch[only]
            race = reference._warp(race, parameters, only)
            race = race + reference._gumbel(seed, position, branch, logits.shape[1])
        lead, other = race[0, expected.ids[row]], race[0, sampled.ids[row]]
        assert lead - other < 1e-5, f"{rows[row]}: {sampled.ids[row]} instead of {expected.ids[row]}"
    assert torch.equal(sampled.logprobs.isnan(), expected.logprobs.isnan())  # a mask may leave only holes
    error = (sampled.logprobs - expected.logprobs)[is_same].abs().nan_to_num()
    assert error.max() <= 1e-5, rows[int(is_same.nonzero()[error.argmax()])]
    for row, top, expected_top in zip(rows, told(sampled.top_logprobs), told(expected.top_logprobs), strict=True):
        assert_same_likeliest(top, expected_top, row)
    return int((~is_same).sum())


def assert_same_likeliest(top, expected, row) -> None:
    """Equal tokens with equal log-probabilities, but for those that float32 can't tell apart or counts as 0."""
    longer, shorter = sorted((top, expected), key=len, reverse=True)
    assert all(logprob < -80 for _, logprob in longer[len(shorter) :]), row
    for (token, logprob), (other, expected_logprob) in zip(top, expected, strict=False):
        assert abs(logprob - expected_logprob) <= 1e-5 * max(1, -logprob / 20), row
        if token != other:
            assert abs(dict(expected).get(token, logprob) - expected_logprob) <= 2e-5, row


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
    for _ in range(10):
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
                    sample(*arguments(logits[i : i + size], rows[i : i + size], histories[i : i + size]))
                    for i in range(0, len(rows), size)
                ]
            ids, logprobs = (torch.cat([getattr(part, name) for part in parts]) for name in ("ids", "logprobs"))
            tops = [row for part in parts for row in told(part.top_logprobs)]
            results.append((ids.tolist(), logprobs.tolist(), tops))
    assert results[1:] == results[:1] * (len(results) - 1)
