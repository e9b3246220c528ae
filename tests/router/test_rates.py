"""What keys may use in a time."""

import pickle

import pytest

from penstock.router.grants import Rate
from penstock.router.rates import Rates, TooFast, Use


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def seconds_to_wait(rates: Rates, use: Use) -> int | None:
    with pytest.raises(TooFast) as refused:
        await rates.take(use)
    return refused.value.retry_after


async def test_a_bucket_of_requests_fills_at_its_rate() -> None:
    clock = Clock()
    rates, one = Rates(clock), Use("alice", Rate(60, "min"), None, num_requests=1)
    for _ in range(60):
        await rates.take(one)
    assert await seconds_to_wait(rates, one) == 1
    await rates.take(Use("bob", Rate(60, "min"), None, num_requests=1))
    clock.now += 2.5
    for _ in range(2):
        await rates.take(one)
    with pytest.raises(TooFast):
        await rates.take(one)
    clock.now += 1e6
    for _ in range(60):
        await rates.take(one)
    with pytest.raises(TooFast):
        await rates.take(one)


async def test_tokens_that_were_made_are_owed() -> None:
    """A prompt that is longer than the bucket is deep may begin when that is full."""
    clock = Clock()
    rates, rate = Rates(clock), Rate(100, "min")
    await rates.take(Use("alice", None, rate, num_tokens=40))
    assert await seconds_to_wait(rates, Use("alice", None, rate, num_tokens=80)) == 12
    rates.note(Use("alice", None, rate, num_tokens=110))
    assert await seconds_to_wait(rates, Use("alice", None, rate)) == 31
    clock.now += 31
    await rates.take(Use("alice", None, rate))
    clock.now += 60
    await rates.take(Use("alice", None, rate, num_tokens=250))
    assert await seconds_to_wait(rates, Use("alice", None, rate)) == 91


async def test_another_rate_holds_for_a_bucket_at_once() -> None:
    rates = Rates(Clock())
    await rates.take(Use("alice", Rate(100, "s"), None, num_requests=1))
    await rates.take(Use("alice", Rate(1, "s"), None, num_requests=1))
    with pytest.raises(TooFast):
        await rates.take(Use("alice", Rate(1, "s"), None, num_requests=1))


def test_a_refusal_is_the_same_in_another_process() -> None:
    error = TooFast("alice", "use", Rate(5, "h"), "tokens", 12.3)
    assert str(error) == ("`alice`, whose key this is, may use 5 tokens per h, and has: there is room again in 13 s")
    found = pickle.loads(pickle.dumps(error))
    assert (str(found), found.retry_after) == (str(error), 13)
