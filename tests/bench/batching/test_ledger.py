"""The benchmark of the ledger, by its command."""

import re

from click.testing import CliRunner

from penstock.bench.batching.ledger import main


def test_the_command_tells_what_a_token_costs() -> None:
    result = CliRunner().invoke(main, ["--sequences", "3", "--steps", "40", "--rounds", "2"], catch_exceptions=False)
    assert result.exit_code == 0
    [all_of_it, own] = re.findall(r"([\d.]+) µs a token in the scheduler, of which the ledger takes (-?[\d.]+)",
                                  result.output)[0]
    assert 0 < float(all_of_it) < 1e4
    assert float(own) < float(all_of_it)
