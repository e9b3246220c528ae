"""Every kind of fault befalls a server beside load of every kind: no answer is lost or changed, and nothing stays."""

from pathlib import Path

import pytest

from tests.faults import load
from tests.faults.driver import run
from tests.faults.report import table
from tests.faults.schedule import KINDS

SEED = 12
"""`make chaos` runs other schedules, for as long as wanted."""


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_every_fault_once(tmp_path: Path) -> None:
    report = await run(tmp_path, SEED, KINDS, once=True)
    print(report.summary(), table(report.records()), sep="\n\n")
    assert len(report.ledger.strikes) + len(report.impossible) == len(KINDS)
    asked = [set(report.asked_beside(strike)) for strike in report.ledger.strikes]
    assert all(asked), "no request ran beside a fault"
    assert set().union(*asked) == set(load.KINDS)
