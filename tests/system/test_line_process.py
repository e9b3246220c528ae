import pytest

from penstock.system.line_process import LineProcess, LostError


async def test_a_process_that_ends_at_once_is_lost_each_time() -> None:
    process = LineProcess("penstock.system.none_such", b"{}\n", "the test")
    for _ in range(3):
        with pytest.raises(LostError, match="the process of the test has ended with status"):
            await process.start()
