"""Runs the orders of all streams, one after the other, on the thread that steps run on.

In a group of several stages another thread agrees on the orders: the stages run different steps at once, and a rank
that computes would keep the others from the next one.

A GPU runs behind that thread: a step is launched while the one before it runs, and another thread waits for the results
and answers. So a plan is launched as soon as it comes, and a result leaves as soon as it is there. On a processor a
step is over when it was launched, and nothing changes threads.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, Protocol

from penstock.contract.plan import Plan
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.devices.energy import Meter
from penstock.shard.execution.executor import Executor, Launched
from penstock.shard.execution.masks import Masks
from penstock.shard.serving.agreement import Agreement

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0                       # that ranks have to agree on an order: some may never hear of it


class Caller(Protocol):
    """Stands for the stream that an order came from, as the worker sees it; any thread may use every member."""

    ended: threading.Event

    def masks(self, step_id: int) -> Masks:
        """Wait for the masks of a step and return them; returns none if the stream ends before they come."""

    def answer(self, result: StepResult | None) -> None:
        """Pass a result on, or None behind the last."""

    def drop(self) -> None: ...


class StepObserver(Protocol):
    """Is told of what the worker has done, in its order: by one thread at a time, not always the same."""

    def opened(self) -> None: ...

    def ran(self, step: Plan, result: StepResult) -> None: ...


@dataclass(frozen=True, slots=True)
class Order:
    """Holds an order of a caller: `work`, or None if no more will come from it; and `encoded`, as it was received."""

    caller: Caller
    work: StreamLimits | Plan | None
    encoded: bytes = b""


@dataclass(slots=True)
class Progress:
    """Counts steps and notes when the last began and ended, in monotonic seconds. The first step is the measurement
    that the shard started with: one that listens can run steps, so if it dies in the next one it is that step's doing.

    A step that is launched behind another one begins when that one ends: so one that hangs is seen to, whatever was
    launched behind it.
    """

    began_at: float
    ended_at: float
    steps_begun: int = 1
    steps_ended: int = 1
    _steps_launched: int = 1
    _change: threading.Lock = field(default_factory=threading.Lock)

    def launch(self) -> None:
        with self._change:
            self._steps_launched += 1
            if self.steps_begun == self.steps_ended:
                self._begin()

    def end(self) -> None:
        with self._change:
            self.ended_at = time.monotonic()
            self.steps_ended += 1
            if self._steps_launched > self.steps_ended:
                self._begin()

    def _begin(self) -> None:
        self.began_at = time.monotonic()
        self.steps_begun += 1


class Worker:
    """Runs the orders that are submitted, on the one thread of `steps`. Orders of a caller that is gone are skipped.

    `results` is one thread too, which finishes the steps that are launched; None for a device that runs nothing behind
    its host. `orders` is another, which agrees on orders while steps run; None lets `steps` do so. `meter` measures
    the energy of steps. A step that raises leaves this rank's state unknown and the other ranks waiting: `die` ends the
    process.
    """

    def __init__(
        self, executor: Executor, agreement: Agreement, steps: ThreadPoolExecutor, die: Callable[[], NoReturn],
        observer: StepObserver | None = None, results: ThreadPoolExecutor | None = None,
        orders: ThreadPoolExecutor | None = None, meter: Meter | None = None,
    ) -> None:
        self.progress = Progress(began_at=time.monotonic(), ended_at=time.monotonic())
        self._executor = executor
        self._agreement = agreement
        self._steps = steps
        self._die = die
        self._observer = observer
        self._results = results
        self._orders = orders
        self._meter = meter
        self._in_flight: list[Future[None]] = []
        self._is_serving = threading.Lock()
        self._is_agreeing = False
        self._is_stopping = False

    def submit(self, order: Order) -> None:
        (self._orders or self._steps).submit(self._safely, self._agree_on, order)

    def stop(self) -> bool:
        """Wait for the end of the steps that have begun; no other begins. Returns whether no other rank was left in
        the middle of an exchange.

        One that all ranks have agreed on has begun: without this rank the devices of the others would wait for ever.
        """
        self._is_stopping = True
        while not self._is_serving.acquire(timeout=STOP_SECONDS):
            if self._is_agreeing:
                is_quiet = False
                break
        else:
            is_quiet = True
            self._is_serving.release()
        if self._orders is not None:
            self._steps.submit(lambda: None).result()  # behind all that was agreed on
        self._drain()
        return is_quiet

    def _safely(self, work: Callable[..., None], *args: Any) -> None:
        """Do the work; an error in it ends the shard."""
        try:
            work(*args)
        except Exception:
            # When all ranks are told to end, the first to do so breaks off the exchanges of the others.
            if not self._is_stopping:
                log.exception("a step failed, the shard ends")
                self._die()

    def _agree_on(self, order: Order) -> None:
        """Execute an order once all ranks have it. One whose caller is gone is skipped."""
        with self._is_serving:
            # Another rank may be in the middle of a step that this one agreed to and then skipped: an exchange for the
            # next order would reach it as the model's numbers.
            if self._is_stopping or order.caller.ended.is_set():
                return
            is_common = True
            if order.work is not None:
                self._is_agreeing = True
                is_common = self._agreement.reach(
                    order.encoded, isinstance(order.work, StreamLimits), order.caller.ended)
                self._is_agreeing = False
            if self._orders is None:
                self._execute(order, is_common)
            else:
                self._steps.submit(self._safely, self._execute, order, is_common)

    def _execute(self, order: Order, is_common: bool) -> None:
        """Launch a step, and see to its end; all other orders wait for the steps before them."""
        if is_common and isinstance(order.work, Plan):
            self.progress.launch()
            if self._meter is not None:
                self._meter.begin()
            launched = self._executor.launch(order.work, partial(order.caller.masks, order.work.step_id))
            if self._results is None:
                self._finish(launched, order.caller)
                return
            self._in_flight = [
                *(future for future in self._in_flight if not future.done()),
                self._results.submit(self._safely, self._finish, launched, order.caller)]
            return
        self._drain()
        if order.work is None:
            order.caller.answer(None)
        elif not is_common:
            order.caller.drop()
        elif isinstance(order.work, StreamLimits):
            self._executor.open(order.work)
            if self._observer is not None:
                self._observer.opened()

    def _finish(self, launched: Launched, caller: Caller) -> None:
        result = self._executor.finish(launched)
        if self._meter is not None:
            result = replace(result, energy_uj=self._meter.end())
        self.progress.end()
        caller.answer(result)
        log.debug("step %d: %d rows, %.2f ms, of which sampling %.2f", launched.step.step_id, len(launched.step.rows),
                  (result.draft_ns + result.forward_ns + result.sample_ns) / 1e6, result.sample_ns / 1e6)
        if self._observer is not None:
            self._observer.ran(launched.step, result)

    def _drain(self) -> None:
        """Wait until every step that was launched is finished and answered."""
        wait(self._in_flight)
