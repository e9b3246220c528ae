"""A small model of this process, its shards, and its series."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil

from penstock import LLM, AsyncLLM, Histogram, SamplingParams
from tests.paths import DEMO_MODEL

MODEL = str(DEMO_MODEL)
SMALL: dict[str, Any] = {"kv_memory": "16MiB", "threads": 1, "max_num_seqs": 8}
LONG = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
PROMPTS = [f"def function_{number}(" for number in range(8)]
SHARED: set[int] = set()


def shards() -> list[psutil.Process]:
    """The shards of this process, but for those that other tests share."""
    found = []
    for each in psutil.Process().children():
        with suppress(psutil.Error):  # it ends
            if "penstock.shard" in each.cmdline() and each.pid not in SHARED:
                found.append(each)
    return found


def noting_shared() -> Iterator[None]:
    """A fixture with which `shards` tells those of a test alone."""
    SHARED.update(each.pid for each in shards())
    yield
    SHARED.clear()


def counted(llm: LLM | AsyncLLM, name: str) -> float:
    """The value of a series."""
    [value] = [each.value for each in llm.get_metrics() if not isinstance(each, Histogram) and each.name == name]
    return value


def wait_for(is_so: Callable[[], object], may_come: Callable[[], bool] = lambda: True) -> None:
    """Waits in a thread until it is so, or fails when it may not come any more."""
    while not is_so():
        assert may_come() or is_so()
        time.sleep(0.001)
