"""Side inputs that ask for vectors and scores."""

import pytest

from penstock.contract.pooling import Pooling, Task


@pytest.mark.parametrize("task", Task)
def test_a_pooling_comes_back_from_its_value(task: Task) -> None:
    pooling = Pooling(task, skipped=3, second=9, dimensions=256, normalized=False)
    assert Pooling.decode(pooling.encode()) == pooling
    assert Pooling.decode(Pooling(task).encode()) == Pooling(task)


@pytest.mark.parametrize(("value", "complaint"), [
    (b"", " has 0 bytes, not 14"),
    (b"\x09" + bytes(13), " asks for task 9, known are 0 to 4"),
])
def test_a_value_that_is_no_pooling_is_refused(value: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Pooling.decode(value)
