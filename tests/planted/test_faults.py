"""Each planted fault still has the text that it changes."""

import pytest

from tests.paths import ROOT
from tests.planted.fault import Fault
from tests.planted.faults import FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_text_is_there_once(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text().count(fault.old) == 1
