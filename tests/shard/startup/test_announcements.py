"""What a shard says when it starts: how much memory it may come to use, and how long each phase took."""

import re
import subprocess
import sys
import time

import psutil

from penstock.shard.startup import memory_ceiling
from penstock.shard.startup.memory_ceiling import MemoryCeiling
from penstock.shard.startup.phases import Phases

MIB = 1 << 20


IN_A_NEW_PROCESS = """
import numpy as np
import psutil

from penstock.shard.startup import memory_ceiling

def run_steps():
    assert np.ones({taken}, np.uint8).any()
    return 128

before = psutil.Process().memory_info().rss
step_tokens, found = memory_ceiling.measured(run_steps, kv=5 << 20, max_step_tokens=512, logits=1000)
print(before, step_tokens, found.used, found.kv, found.step, found.most, found, sep="\\n")
"""


def test_memory_that_steps_take_for_a_while_is_promised() -> None:
    taken = 64 * MIB
    program = IN_A_NEW_PROCESS.format(taken=taken)
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    *numbers, sentence = output.splitlines()
    before, step_tokens, used, kv, step, most = map(int, numbers)
    assert (step_tokens, kv) == (128, 5 * MIB)
    assert before * 0.9 < used < before + taken / 2
    assert taken * 0.9 * 2 * 4 < step < taken * 1.3 * 2 * 4
    assert most == used + kv + step + memory_ceiling.OTHER_BYTES
    [told, *parts] = map(int, re.findall(r"\d+", sentence))
    assert 0 <= sum(parts) - told <= len(parts)


def test_promises_that_the_machine_cannot_keep() -> None:
    """What the shards use already is taken, and so is their KV memory where it is reserved."""
    found = MemoryCeiling(used=500 * MIB, kv=100 * MIB, step=20 * MIB)
    more = 20 * MIB + memory_ceiling.OTHER_BYTES
    assert not found.excess(2 * more, num_shards=2, is_kv_reserved=True)
    assert found.excess(2 * more - MIB, num_shards=2, is_kv_reserved=True) == (
        "2 shards may come to use 136 MiB more, and 135 MiB are available: set --kv-memory, --max-batch-prefill-tokens "
        "or --max-batch-size lower")
    assert not found.excess(more + 100 * MIB, num_shards=1, is_kv_reserved=False)
    assert found.excess(more + 99 * MIB, num_shards=1, is_kv_reserved=False).startswith("1 shard may come to use 168 ")


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
    assert total <= age + 1.1, "psutil knows when the machine began to a second"
    assert first > 0.1, "Python had started long before"
