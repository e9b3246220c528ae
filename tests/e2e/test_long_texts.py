"""The longest texts on every route, from clients that leave and from ones that stay: the router keeps what it has
announced, and others notice little.

For the figures: `python -m penstock.bench.server.long_texts`.
"""

from statistics import median

import pytest

from penstock.bench.server.long_texts import Cost, bench, bodies, punctuation, row

LATE = 0.5
FACTOR = 2.0
SLACK = 0.02
"""Seconds that a short answer may take more in any case, for it takes hardly longer."""


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(900)
async def test_the_longest_texts_cost_others_little(every_case: bool) -> None:
    async with bench([]) as server:
        usual = await server.usual()
        print(row("nothing", usual))
        for number, (route, body) in enumerate(bodies(punctuation(0)).items()):
            for leaves in (True, False) if every_case else (number % 2 == 1,):
                cost = await server.attack(route, body, leaves)
                print(row(f"{route}, {'leave' if leaves else 'stay'}", cost))
                refused = "400" if route.startswith("/v1/") else "422"
                assert not cost.statuses.keys() - {"200", refused, "INVALID_ARGUMENT", *["left"] * leaves}
                check(cost, usual)
                assert cost.router <= server.announced
                assert cost.children <= server.announced_children


def check(cost: Cost, usual: Cost) -> None:
    assert max(cost.livez) <= max(usual.livez) + LATE
    assert median(cost.short) <= FACTOR * median(usual.short) + SLACK
    assert cost.work < 3.0, "whose client has left is worked on"
