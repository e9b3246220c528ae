"""How much work a plan is, in instructions, which no other load of the machine changes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from penstock.router.scheduling.scheduler import Scheduler
from tests.router.scheduling.small_schedulers import answer, make_sequence, planned


def work(scheduler: Scheduler) -> int:
    """Plans a step, and returns how many instructions of Python that took."""
    number = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal number
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        number += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        scheduler.plan()
    finally:
        sys.settrace(before)
    return number


def busy(num_running: int, max_slots: int, num_waiting: int) -> Scheduler:
    """A scheduler in which so many decode, and so many have come since."""
    scheduler = Scheduler(block_size=16, num_blocks=4000, max_slots=max_slots, max_step_tokens=4096)
    for id in range(num_running):
        scheduler.add(make_sequence(id, max_new=1000))
    scheduler.commit(answer(planned(scheduler), *[7] * num_running))
    for id in range(num_running, num_running + num_waiting):
        scheduler.add(make_sequence(id, length=8))
    return scheduler


def test_a_plan_is_no_more_work_for_those_that_find_no_slot() -> None:
    few, many = (work(busy(64, 64, number)) for number in (1, 500))
    assert many < few + 200


def test_each_that_is_admitted_is_as_much_work_however_many_are() -> None:
    few, many = (work(busy(1, 256, number)) for number in (50, 200))
    assert many < 4.5 * few
