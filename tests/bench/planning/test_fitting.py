"""The cost of steps that follows from some of them."""

import random
from dataclasses import replace

import pytest

from penstock.bench.planning.costs import Measured, decode_work, prompt_work
from penstock.bench.planning.fitting import Observation, fit

REAL = Measured(step=2e-3, sample=3e-4, token=8e-5, read=2e-7, pair=3e-9, request_seconds=4e-3)
WORKS = [*(decode_work(number, length) for number in (1, 4, 16, 32) for length in (50, 600)),
         *(prompt_work(length) for length in (16, 64, 256, 1024))]


def observe(noise: float) -> list[Observation]:
    draw = random.Random(1)
    alone = [Observation(work, REAL.seconds(work) + REAL.request_seconds * is_first, requests=is_first)
             for work in WORKS for is_first in [int(work.samples < work.tokens)]]
    waited, own = decode_work(3, 200), decode_work(3, 200) + prompt_work(100)
    amid = Observation(1.5 * waited + own, REAL.request_seconds + 1.5 * REAL.seconds(waited) + REAL.seconds(own),
                       steps=2.5, requests=1)
    return [replace(each, seconds=each.seconds * draw.uniform(1 - noise, 1 + noise))
            for _ in range(3) for each in (*alone, amid)]


def test_the_cost_is_found() -> None:
    found = fit(observe(0.0))
    for name in ("step", "sample", "token", "read", "pair", "request_seconds"):
        assert getattr(found, name) == pytest.approx(getattr(REAL, name), rel=1e-6)


def test_noise_makes_no_part_negative() -> None:
    found = fit(observe(0.3))
    assert min(found.step, found.sample, found.token, found.read, found.pair, found.request_seconds) >= 0
    for work in WORKS:
        assert found.seconds(work) == pytest.approx(REAL.seconds(work), rel=0.3)


def test_what_takes_no_time_has_no_part() -> None:
    flat = [Observation(work, 0.01 - 1e-6 * work.tokens) for work in WORKS]
    assert fit(flat).token == 0
