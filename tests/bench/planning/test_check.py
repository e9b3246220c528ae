"""The comparison of a plan with a real server of the demo model, by its command."""

import math

import pytest
from click.testing import CliRunner

from penstock.bench.planning.check import Line, moderate_rate
from penstock.bench.planning.costs import Measured
from penstock.launcher.cli import main


def test_a_line_says_how_far_apart_two_figures_are() -> None:
    assert Line("tokens/s", 115.0, 100.0).ratio == pytest.approx(1.15)


def test_a_moderate_rate_is_one_that_a_server_can_do() -> None:
    cost = Measured(step=0.008, sample=0.001, token=0.0, read=0.0, pair=0.0, request_seconds=0.0)
    assert moderate_rate(cost, prompt=10, answer=100) == pytest.approx(0.6 / (0.009 + 100 * 0.016 / 8))


@pytest.mark.slow
@pytest.mark.parametrize("shards", [(), ("--step-seconds", "0.01")], ids=["real", "scripted"])
def test_the_command_compares_two_kinds_of_traffic(shards: tuple[str, ...]) -> None:
    arguments = ["bench", "plan", *shards, "--requests", "10", "--rounds", "1", "--prompt", "20", "--answer", "8",
                 "--clients", "4", "--within", "1000"]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "a step takes" in result.output
    rows = [line.split() for line in result.output.splitlines() if "requests/s:" in line or "clients:" in line]
    assert len(rows) == 8  # five of the first, three of the second
    for *name, planned, measured, _ in rows:
        least = 1 if name[-1] == "tokens/s" else 0  # tokens that a busy machine has held up come all at once
        assert all(least <= float(figure) < math.inf for figure in (planned, measured)), result.output
