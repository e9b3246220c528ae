"""The benchmark of loads, on the demo model."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server import loads
from penstock.bench.server.loads import Gaps, main


def test_gaps_are_told_in_milliseconds() -> None:
    assert Gaps.of([0.001] * 99 + [0.101]) == Gaps(100, 2.0, 1.0, pytest.approx(2.0, abs=0.5))  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_next_load_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "ALONE_SECONDS", 0.5)
    shown = CliRunner(catch_exceptions=False).invoke(main, [
        str(DEMO_MODEL), "--rounds", "1", "--loads", "1", "--json", str(tmp_path / "found"), "--", "--kv-memory",
        "64MiB"])
    assert "of it\nfrom token to token of 2 streams: mean " in shown.output
    [found] = json.loads((tmp_path / "found").read_text())["figures"]
    assert len(found["phases"]) == 3
    assert ("imports" in found["phases"][0], "imports" in found["phases"][1]) == (True, False)
    assert found["gaps_beside"]["number"] > 10
