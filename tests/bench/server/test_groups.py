"""What the benchmark of groups makes of some that do not come."""

from types import SimpleNamespace

import click
import pytest

from penstock.bench.server import cell


def test_groups_that_never_serve_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell.Cell, "series", lambda self: {'penstock_groups{state="serving"}': 1.0})
    monkeypatch.setattr(cell, "START_SECONDS", 0.0)
    with pytest.raises(click.ClickException, match="1 of 2 groups serve after 0 s"):
        cell.Cell("", 0, SimpleNamespace(), {}).wait_until_serving(2)  # type: ignore[arg-type]
