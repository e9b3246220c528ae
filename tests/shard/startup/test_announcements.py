"""What a shard says when it starts: how much memory it may come to use, and how long each phase took."""

import re
import time

import numpy as np
import psutil

from penstock.shard.startup import promise
from penstock.shard.startup.phases import Phases

MIB = 1 << 20


def test_memory_that_steps_take_for_a_while_is_promised() -> None:
    taken = 64 * MIB

    def run_steps() -> int:
        assert np.ones(taken, np.uint8).any()
        return 128

    before = psutil.Process().memory_info().rss
    step_tokens, found = promise.measured(run_steps, kv=5 * MIB, max_step_tokens=512, logits=1000)
    assert step_tokens == 128
    assert found is not None
    assert before - 16 * MIB < found.used < before + taken
    assert taken * 0.9 * 2 * 4 < found.step < taken * 1.3 * 2 * 4
    assert found.most == found.used + found.kv + found.step + promise.OTHER_BYTES
    [most, *parts] = map(int, re.findall(r"\d+", str(found)))
    assert 0 <= sum(parts) - most <= len(parts)


def test_phases_begin_with_the_process() -> None:
    phases = Phases()
    phases.end("Python")
    time.sleep(0.05)
    phases.end("a wait")
    age = time.time() - psutil.Process().create_time()
    total, first, second = map(float, re.fullmatch(
        r"([\d.]+) s: Python ([\d.]+), a wait ([\d.]+)", str(phases)).groups())  # type: ignore[union-attr]
    assert abs(total - first - second) < 0.02
    assert second >= 0.05
    assert total <= age + 0.1
    assert first > 0.1, "Python had started long before"
