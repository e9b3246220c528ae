"""The orders of all streams, run one after the other on the thread that steps run on."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, Protocol

from shard.agreement import Agreement
from shard.executor import Executor
from shard.masks import Masks
from shard.step import Open, Step, StepResult

log = logging.getLogger(__name__)


class Caller(Protocol):
    """The stream that an order came from, as the worker sees it; every member may be used from any thread."""

    ended: threading.Event

    def masks(self, step_id: int) -> Masks:
        """Waits for them; without any if the stream ends before they come."""

    def answer(self, result: StepResult) -> None: ...

    def finish(self) -> None: ...

    def drop(self) -> None: ...


class Witness(Protocol):
    """Who is told of what the worker has done, on the thread of the steps."""

    def opened(self) -> None: ...

    def ran(self, step: Step, result: StepResult) -> None: ...


@dataclass(frozen=True, slots=True)
class Order:
    """`work` None: nothing more will come from this caller. `content`: the order as it was encoded."""

    caller: Caller
    work: Open | Step | None
    content: bytes = b""


@dataclass(slots=True)
class Progress:
    """Monotonic times in seconds. The first step is the measurement that the shard started with: one that listens can
    run steps, so if it dies in the next one it is that step's doing."""

    began_at: float
    ended_at: float
    steps_begun: int = 1
    steps_ended: int = 1


class Worker:
    """Runs the orders that `put` queues, on the one thread of `steps`. Those of a caller that is gone are skipped.

    A step that raises leaves this rank's state unknown and the other ranks waiting: `die` ends the process.
    """

    def __init__(
        self, executor: Executor, agreement: Agreement, steps: ThreadPoolExecutor, die: Callable[[], NoReturn],
        witness: Witness | None = None,
    ) -> None:
        self.progress = Progress(began_at=time.monotonic(), ended_at=time.monotonic())
        self._executor = executor
        self._agreement = agreement
        self._steps = steps
        self._die = die
        self._witness = witness
        self._is_running = threading.Lock()
        self._is_stopping = False

    def put(self, order: Order) -> None:
        self._steps.submit(self._run, order)

    def stop(self) -> None:
        """Wait for the end of the running step; no other begins."""
        self._is_stopping = True
        with self._is_running:
            pass

    def _run(self, order: Order) -> None:
        try:
            self._serve(order)
        except Exception:
            # When all ranks are told to end, the first to do so breaks off the exchanges of the others.
            if not self._is_stopping:
                log.exception("a step failed, the shard ends")
                self._die()

    def _serve(self, order: Order) -> None:
        # Another rank may be in the middle of a step that this one agreed to and then skipped: an exchange for the next
        # order would reach it as the model's numbers.
        if self._is_stopping or order.caller.ended.is_set():
            return
        if order.work is None:
            order.caller.finish()
        elif not self._agreement.reach(order.content, isinstance(order.work, Open), order.caller.ended):
            order.caller.drop()
        elif isinstance(order.work, Open):
            self._executor.open(order.work)
            if self._witness is not None:
                self._witness.opened()
        else:
            with self._is_running:
                if self._is_stopping:
                    return
                result = self._time(order.work, order.caller)
            order.caller.answer(result)
            if self._witness is not None:
                self._witness.ran(order.work, result)

    def _time(self, step: Step, caller: Caller) -> StepResult:
        self.progress.began_at = time.monotonic()
        self.progress.steps_begun += 1
        result = self._executor.execute(step, partial(caller.masks, step.step_id))
        self.progress.ended_at = time.monotonic()
        self.progress.steps_ended += 1
        return result
