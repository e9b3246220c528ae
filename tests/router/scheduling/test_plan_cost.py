"""How much work scheduling is, in instructions, which no other load of the machine changes."""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.scheduler import Scheduler
from tests.router.scheduling.small_schedulers import answer, make_sequence, planned


def work(verb: Callable[[], Any]) -> int:
    """Calls a verb of a scheduler, and returns how many instructions of Python that took."""
    number = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal number
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        number += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        verb()
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
    few, many = (work(busy(64, 64, number).plan) for number in (1, 500))
    assert many < few + 200


def test_each_that_is_admitted_is_as_much_work_however_many_are() -> None:
    few, many = (work(busy(1, 256, number).plan) for number in (50, 200))
    assert many < 4.5 * few


def test_a_load_is_no_more_work_to_tell_however_many_wait() -> None:
    """It is asked for each text of thousands where there are several groups."""
    few, many = (work(partial(busy(1, 1, number).load, False)) for number in (1, 500))
    assert many == few


def test_one_that_comes_is_little_more_work_however_many_run_and_wait() -> None:
    def come(scheduler: Scheduler, id: int) -> None:
        scheduler.add(make_sequence(id, length=8))

    few, many = (work(partial(come, busy(number, 256, 2 * number), 3 * number)) for number in (2, 200))
    assert many < few + 50


def test_one_that_leaves_is_little_more_work_however_many_wait() -> None:
    few, many = (work(partial(busy(1, 1, number).finish, number, FinishReason.CANCELLED))
                 for number in (1, 500))
    assert many < few + 50
