"""The threads that run steps: one on a processor, and a second one for the results of a device that runs behind."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch

from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.communication.distributed import Group
from penstock.shard.devices.device import Device, Download
from penstock.shard.devices.energy import Meter
from penstock.shard.execution.executor import Executor, Launched
from penstock.shard.execution.masks import Masks
from penstock.shard.execution.prompt_logprobs import PromptLogprobsBatch
from penstock.shard.execution.sampler import SamplingBatch
from penstock.shard.serving.agreement import Agreement
from penstock.shard.serving.worker import Order, Progress, Worker
from tests.shard.ranks import make_config
from tests.shard.step_programs import Program, Request, batched
from tests.tiny_models import make_tiny

SECONDS = 20


class SlowExecutor:
    """Each step lasts until it is released."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def open(self, limits: StreamLimits) -> None:
        self.events.append("open")

    def launch(self, step: Plan, late_masks: Callable[[], Masks]) -> Launched:
        self.events.append(f"launch {step.step_id}")
        self.begun.release()
        sampling_batch, prompt_batch = SamplingBatch([], [], np.empty(0, np.int64), {}), PromptLogprobsBatch([], {})
        return Launched(step, sampling_batch, prompt_batch, {}, Download([], []), 0, 0, (0,) * 5)

    def finish(self, launched: Launched) -> StepResult:
        assert self.may_end.wait(SECONDS)
        self.events.append(f"finish {launched.step.step_id}")
        return StepResult(launched.step.step_id, (), 0, 0)


class BrokenExecutor(SlowExecutor):
    def finish(self, launched: Launched) -> StepResult:
        super().finish(launched)
        raise RuntimeError("the device is lost")


class Listener:
    """The masks of a step come when the result of the step before it was answered: the router makes them of it."""

    def __init__(self, program: Program | None = None, vocab_size: int = 0) -> None:
        self.ended = threading.Event()
        self.results: list[StepResult] = []
        self.is_finished = threading.Event()
        self._program = program
        self._vocab_size = vocab_size
        self._change = threading.Condition()

    @property
    def answered(self) -> list[int]:
        return [result.step_id for result in self.results]

    def masks(self, step_id: int) -> Masks:
        assert self._program is not None
        with self._change:
            assert self._change.wait_for(lambda: len(self.results) >= step_id, SECONDS)
        return self._program.masks(step_id, self._vocab_size)

    def answer(self, result: StepResult | None) -> None:
        if result is None:
            self.is_finished.set()
            return
        with self._change:
            self.results.append(result)
            self._change.notify_all()

    def drop(self) -> None: ...


class SlowAgreement(Agreement):
    """The other ranks take their time."""

    def __init__(self) -> None:
        super().__init__(Group())
        self.asked = threading.Event()
        self.others_agree = threading.Event()

    def reach(self, encoded: bytes, opens_stream: bool, stream_ended: threading.Event) -> bool:
        self.asked.set()
        return self.others_agree.wait(SECONDS)


def die() -> NoReturn:
    raise AssertionError


def make_step(step_id: int) -> Plan:
    return Plan(step_id, (Row(0, 0, (1,), new_blocks=(0,)),))


@pytest.fixture(params=[False, True], ids=["one thread", "two threads"])
def has_results_thread(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def threads() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def make_worker(
    threads: ExitStack, executor: SlowExecutor | Executor, has_results_thread: bool = True,
    die: Callable[[], NoReturn] = die, agreement: Agreement | None = None, has_orders_thread: bool = False,
    meter: Meter | None = None,
) -> Worker:
    orders = threads.enter_context(ThreadPoolExecutor(1)) if has_orders_thread else None
    results = threads.enter_context(ThreadPoolExecutor(1)) if has_results_thread else None
    steps = threads.enter_context(ThreadPoolExecutor(1))
    return Worker(
        executor, agreement or Agreement(Group()),  # type: ignore[arg-type]
        steps, die, None, results, orders, meter)


def stop_slowly(worker: Worker, executor: SlowExecutor) -> None:
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    stopping.join(0.05)
    assert stopping.is_alive(), "it waits for the steps that have begun"
    executor.may_end.set()
    stopping.join(SECONDS)
    assert not stopping.is_alive()


def test_no_step_begins_after_stop() -> None:
    executor, caller = SlowExecutor(), Listener()
    with ExitStack() as threads:
        worker = make_worker(threads, executor, has_results_thread=False)
        for step_id in range(50):
            worker.submit(Order(caller, make_step(step_id)))
        assert executor.begun.acquire(timeout=SECONDS)
        stop_slowly(worker, executor)
    assert executor.events == ["launch 0", "finish 0"]
    assert caller.answered == [0]


def test_stop_waits_for_all_steps_in_flight() -> None:
    executor, caller = SlowExecutor(), Listener()
    with ExitStack() as threads:
        worker = make_worker(threads, executor)
        for step_id in range(2):
            worker.submit(Order(caller, make_step(step_id)))
            assert executor.begun.acquire(timeout=SECONDS)
        stop_slowly(worker, executor)
        assert caller.answered == [0, 1]
        worker.submit(Order(caller, make_step(2)))
    assert executor.events == ["launch 0", "launch 1", "finish 0", "finish 1"]


class Count:
    """Counts how often it was read."""

    most = 1000

    def __init__(self) -> None:
        self._counts = itertools.count()

    def read(self) -> int:
        return next(self._counts)


def test_results_have_the_energy_that_was_measured(threads: ExitStack, has_results_thread: bool) -> None:
    """It is read as the first step begins, as each of them ends, and where none runs as the next begins."""
    executor, caller = SlowExecutor(), Listener()
    worker = make_worker(threads, executor, has_results_thread, meter=Meter([Count()], 0.0))
    executor.may_end.set()
    for step_id in range(3):
        worker.submit(Order(caller, make_step(step_id)))
    worker.submit(Order(caller, None))
    assert caller.is_finished.wait(SECONDS)
    assert [result.energy_uj for result in caller.results] == [1, 1, 1]


class CountingAgreement(Agreement):
    """Agrees with all but the order of one number."""

    def __init__(self, refused: int = -1) -> None:
        super().__init__(Group())
        self.reached = threading.Semaphore(0)
        self._numbers = itertools.count()
        self._refused = refused

    def reach(self, encoded: bytes, opens_stream: bool, stream_ended: threading.Event) -> bool:
        is_common = next(self._numbers) != self._refused
        self.reached.release()
        return is_common


def test_stages_agree_while_a_step_runs_and_run_all_that_they_agreed_on() -> None:
    executor, caller, agreement = SlowExecutor(), Listener(), CountingAgreement()
    with ExitStack() as threads:
        worker = make_worker(threads, executor, False, agreement=agreement, has_orders_thread=True)
        for step_id in range(3):
            worker.submit(Order(caller, make_step(step_id)))
        assert executor.begun.acquire(timeout=SECONDS)
        assert all(agreement.reached.acquire(timeout=SECONDS) for _ in range(3))
        stop_slowly(worker, executor)
        worker.submit(Order(caller, make_step(3)))
    assert executor.events == [f"{what} {step_id}" for step_id in range(3) for what in ("launch", "finish")]
    assert caller.answered == [0, 1, 2]


def test_an_order_that_was_left_behind_comes_after_the_steps_before_it() -> None:
    executor, old, new = SlowExecutor(), Listener(), Listener()
    dropped = threading.Event()
    old.drop = dropped.set  # type: ignore[method-assign]
    with ExitStack() as threads:
        agreement = CountingAgreement(refused=1)
        worker = make_worker(threads, executor, False, agreement=agreement, has_orders_thread=True)
        for order in (Order(old, make_step(0)), Order(old, make_step(1)), Order(new, StreamLimits(1, 1, 1, 2)),
                      Order(new, make_step(0)), Order(new, None)):
            worker.submit(order)
        assert all(agreement.reached.acquire(timeout=SECONDS) for _ in range(4))
        assert not dropped.is_set()
        executor.may_end.set()
        assert new.is_finished.wait(SECONDS)
    assert executor.events == ["launch 0", "finish 0", "open", "launch 0", "finish 0"]
    assert dropped.is_set()


def test_a_step_that_is_agreed_on_while_the_shard_stops_is_run(has_results_thread: bool) -> None:
    """The other ranks have launched it, and their devices wait for this one's."""
    executor, caller, agreement = SlowExecutor(), Listener(), SlowAgreement()
    executor.may_end.set()
    with ExitStack() as threads:
        worker = make_worker(threads, executor, has_results_thread, agreement=agreement)
        worker.submit(Order(caller, make_step(0)))
        worker.submit(Order(caller, make_step(1)))
        assert agreement.asked.wait(SECONDS)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        stopping.join(0.05)
        assert stopping.is_alive()
        agreement.others_agree.set()
        stopping.join(SECONDS)
        assert executor.events == ["launch 0", "finish 0"]
    assert caller.answered == [0]


def test_a_shard_stops_though_the_others_never_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.shard.serving.worker.STOP_SECONDS", 0.01)
    executor, agreement = SlowExecutor(), SlowAgreement()
    with ExitStack() as threads:
        worker = make_worker(threads, executor, agreement=agreement)
        worker.submit(Order(Listener(), make_step(0)))
        assert agreement.asked.wait(SECONDS)
        worker.stop()
        assert executor.events == []
        executor.may_end.set()
        agreement.others_agree.set()


def test_slots_are_cleared_when_nothing_runs(threads: ExitStack) -> None:
    """Stream limits come after a lost stream, whose steps are in flight."""
    executor, old, new = SlowExecutor(), Listener(), Listener()
    worker = make_worker(threads, executor)
    for step_id in range(2):
        worker.submit(Order(old, make_step(step_id)))
        assert executor.begun.acquire(timeout=SECONDS)
    old.ended.set()
    worker.submit(Order(old, make_step(2)))
    worker.submit(Order(new, StreamLimits(1, 1, 1, 2)))
    worker.submit(Order(new, make_step(0)))
    worker.submit(Order(new, None))
    assert not executor.begun.acquire(timeout=0.05)
    executor.may_end.set()
    assert new.is_finished.wait(SECONDS)
    assert executor.events == ["launch 0", "launch 1", "finish 0", "finish 1", "open", "launch 0", "finish 0"]
    assert (new.answered, old.is_finished.is_set()) == ([0], False)


def test_a_step_that_fails_ends_the_process(has_results_thread: bool) -> None:
    deaths: list[str] = []

    def note() -> NoReturn:
        deaths.append(threading.current_thread().name)
        raise SystemExit
    executor, caller = BrokenExecutor(), Listener()
    executor.may_end.set()
    with ExitStack() as threads:
        make_worker(threads, executor, has_results_thread, note).submit(Order(caller, make_step(0)))
    assert len(deaths) == 1
    assert caller.answered == []


def test_a_step_may_fail_while_the_shard_stops(has_results_thread: bool) -> None:
    """Another rank has ended already."""
    executor = BrokenExecutor()
    with ExitStack() as threads:
        worker = make_worker(threads, executor, has_results_thread)
        worker.submit(Order(Listener(), make_step(0)))
        assert executor.begun.acquire(timeout=SECONDS)
        stop_slowly(worker, executor)


def test_a_step_behind_another_begins_when_that_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs is in its step since it began, though others were launched meanwhile."""
    now = [10.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress(began_at=0.0, ended_at=0.0)
    seen = []
    for seconds, change in enumerate([progress.launch, progress.launch, progress.launch, progress.end, progress.end,
                                      progress.end, progress.launch, progress.end]):
        now[0] = 10.0 + seconds
        change()
        seen.append((progress.steps_begun, progress.steps_ended, progress.began_at, progress.ended_at))
    assert seen == [(2, 1, 10, 0), (2, 1, 10, 0), (2, 1, 10, 0), (3, 2, 13, 13), (4, 3, 14, 14), (4, 4, 14, 15),
                    (5, 4, 16, 15), (5, 5, 16, 17)]


class LaggingExecutor(Executor):
    """Like a device: a step ends only when the one behind it was sent."""

    num_steps = 0

    def open(self, limits: StreamLimits) -> None:
        super().open(limits)
        self._launched = threading.Semaphore(0)

    def launch(self, step: Plan, late_masks: Callable[[], Masks] = dict) -> Launched:
        if step.step_id > 0:
            self._launched.release()
        return super().launch(step, late_masks)

    def finish(self, launched: Launched) -> StepResult:
        is_last = launched.step.step_id == self.num_steps - 1
        assert is_last or self._launched.acquire(timeout=SECONDS)
        return super().finish(launched)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def program() -> Program:
    requests = [
        Request([5, 6, 7, 8], 6),
        Request(list(range(100, 140)), 5, Sampling(do_sample=True, seed=3, top_k=40, repetition_penalty=1.3, top_n=2)),
        Request(list(range(50, 60)), 5, Sampling(do_sample=True, seed=8, presence_penalty=0.5), mask_seed=5),
        Request([7, 8], 4, Sampling(watermark=True, raw_logprobs=True, top_n=1), mask_seed=6,
                wants_prompt_logprobs=True),
        Request(list(range(3, 90)), 3, Sampling(top_n=3), wants_prompt_logprobs=True),
    ]
    return batched(requests, seed=1)


@pytest.mark.parametrize("packs", [False, True])
def test_a_device_that_lags_gives_the_same_answers(
    model: Path, program: Program, monkeypatch: pytest.MonkeyPatch, packs: bool
) -> None:
    """Though every step ends only after the next was launched, and that one's masks come only when it has ended."""
    expected = Executor(make_config(model), Group())
    expected.open(program.limits)
    rows = [expected.execute(step, partial(program.masks, index, 160)).rows
            for index, step in enumerate(program.steps)]
    monkeypatch.setattr("penstock.shard.execution.executor.Device", partial(Device, packs=packs))
    executor, caller = LaggingExecutor(make_config(model), Group()), Listener(program, 160)
    executor.num_steps = len(program.steps)
    with ExitStack() as threads:
        worker = make_worker(threads, executor)
        worker.submit(Order(caller, program.limits))
        for step in program.steps:
            worker.submit(Order(caller, step))
        worker.submit(Order(caller, None))
        assert caller.is_finished.wait(SECONDS)
    assert caller.answered == list(range(len(program.steps)))
    assert [result.rows for result in caller.results] == rows
    assert all(result.forward_ns > 0 for result in caller.results)
    assert torch.equal(executor._open_slots().last_token, expected._open_slots().last_token)
