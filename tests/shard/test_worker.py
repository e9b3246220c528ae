"""The thread that runs steps, without a model."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import numpy as np

from shard.agreement import Agreement
from shard.distributed import Group
from shard.masks import Masks
from shard.step import Open, Row, Step, StepResult
from shard.worker import Order, Worker


class SlowExecutor:
    """Each step lasts until it is released."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def open(self, limits: Open) -> None: ...

    def execute(self, step: Step, late_masks: Callable[[], Masks]) -> StepResult:
        self.begun.append(step.step_id)
        self.has_begun.set()
        assert self.may_end.wait(10)
        return StepResult(step.step_id, (), 0, 0)


class Listener:
    def __init__(self) -> None:
        self.ended = threading.Event()
        self.answered: list[int] = []

    def masks(self, step_id: int) -> Masks:
        return {}

    def answer(self, result: StepResult) -> None:
        self.answered.append(result.step_id)

    def finish(self) -> None: ...

    def drop(self) -> None: ...


def die() -> NoReturn:
    raise AssertionError


def make_step(step_id: int) -> Step:
    return Step(step_id, (), (Row(0, 0, False, np.array([1]), np.array([0], np.int32), True),))


def test_no_step_begins_after_stop() -> None:
    executor, caller = SlowExecutor(), Listener()
    with ThreadPoolExecutor(1) as steps:
        worker = Worker(executor, Agreement(Group()), steps, die)  # type: ignore[arg-type]
        for step_id in range(50):
            worker.put(Order(caller, make_step(step_id)))
        assert executor.has_begun.wait(10)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        stopping.join(0.05)
        assert stopping.is_alive(), "it waits for the step"
        executor.may_end.set()
        stopping.join(10)
        assert not stopping.is_alive()
    assert executor.begun == [0]
    assert caller.answered == [0]
