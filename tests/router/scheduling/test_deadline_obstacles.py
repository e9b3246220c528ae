"""Promises beside what can't run: suspects, quotas, adapters, the background, and deadlines that have passed."""

from collections.abc import Callable

import pytest

from penstock.router.scheduling.admission import MAX_PASSED
from penstock.router.scheduling.estimate import Work
from penstock.router.scheduling.priorities import BACKGROUND
from penstock.router.scheduling.promise import Promise
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.tenant import KvQuota, Tenant
from penstock.router.scheduling.wait_reasons import WaitReason
from tests.router.scheduling.small_schedulers import make_sequence, planned
from tests.router.scheduling.test_deadlines import STEP, Timed

SMALL = Tenant("small", kv_quota=KvQuota(12, is_percent=False))


def learned(max_slots: int = 2) -> Timed:
    timed = Timed(max_slots=max_slots)
    timed.learn()
    timed.scheduler.adapters.budget = 1
    timed.scheduler.adapters.know(1, 1)
    return timed


def add(timed: Timed, sequence: Sequence, seconds: float | None = None) -> Sequence:
    if seconds is not None:
        sequence.promise = Promise(timed.now + seconds)
    timed.scheduler.add(sequence)
    return sequence


def of_tenant(id: int, tenant: Tenant = SMALL) -> Sequence:
    sequence = make_sequence(id)
    sequence.tenant = tenant
    return sequence


def suspect(id: int) -> Sequence:
    sequence = make_sequence(id)
    sequence.record.is_narrowed, sequence.record.cleared_at = True, 100
    return sequence


def test_a_promise_evicts_no_suspect_that_runs_alone() -> None:
    timed = learned(max_slots=1)
    alone = add(timed, suspect(1))
    timed.step()
    add(timed, make_sequence(2), 2 * STEP)
    assert not planned(timed.scheduler).preempted
    assert alone.status is Status.RUNNING


def test_one_whose_tenant_holds_what_it_may_is_promised_nothing_and_evicts_nobody() -> None:
    timed = learned()
    add(timed, of_tenant(1))
    timed.step()
    second = of_tenant(2)
    second.promise = Promise(timed.now + 60.0)
    assert timed.scheduler.promises.judge(second).obstacle is WaitReason.QUOTA
    other = add(timed, make_sequence(3))
    timed.step()
    add(timed, of_tenant(4), 3 * STEP)
    assert not planned(timed.scheduler).preempted
    assert other.status is Status.RUNNING


def test_those_of_the_tenant_that_wait_count_too() -> None:
    timed = learned()
    add(timed, of_tenant(1))
    second = of_tenant(2)
    second.promise = Promise(timed.now + 60.0)
    assert timed.scheduler.promises.judge(second).obstacle is WaitReason.QUOTA
    second.tenant = Tenant("other", kv_quota=SMALL.kv_quota)
    assert timed.scheduler.promises.judge(second).can_be_met


def test_nothing_is_known_without_the_adapter_or_the_group() -> None:
    timed = learned()
    sequence = make_sequence(1, adapter=1)
    sequence.promise = Promise(timed.now + 60.0)
    assert timed.scheduler.promises.judge(sequence).obstacle is WaitReason.ADAPTER
    sequence = make_sequence(2)
    sequence.promise = Promise(timed.now + 60.0)
    assert timed.scheduler.promises.judge(sequence, has_group=False).obstacle is WaitReason.GROUP
    assert sequence.promise.expected is None


@pytest.mark.parametrize("make", [
    lambda: make_sequence(2, priority=BACKGROUND), lambda: of_tenant(2), lambda: make_sequence(2, adapter=1),
    lambda: suspect(2)], ids=["background", "quota", "adapter", "suspect"])
def test_one_that_can_not_run_is_passed_by_nobody(make: Callable[[], Sequence]) -> None:
    """It is as if it were not there: promises still count."""
    timed = learned()
    on_trial = of_tenant(1)
    on_trial.record.cleared_at = 100
    for each in (on_trial, make_sequence(3)):
        add(timed, each)
    timed.step()
    unable = add(timed, make())
    unable.num_passed = MAX_PASSED
    urgent = add(timed, make_sequence(4), 2 * STEP)
    assert timed.scheduler._batch.first_without_promise(timed.scheduler.suspects) is None
    timed.step()
    assert urgent.status is Status.RUNNING
    assert unable.num_passed == MAX_PASSED


def test_one_whose_deadline_has_passed_takes_nothing_from_others() -> None:
    timed = learned()
    for id in (1, 2):
        add(timed, make_sequence(id, max_new=40))
    late = add(timed, make_sequence(3), -STEP)
    for _ in range(3):
        assert timed.step() == [1, 2]
    assert not late.has_promise
    assert late.status is Status.WAITING


def test_one_that_runs_behind_its_deadline_makes_way_for_others() -> None:
    timed = learned(max_slots=1)
    late = add(timed, make_sequence(1, max_new=60), 1.5 * STEP)
    for _ in range(3):
        timed.step()
    add(timed, make_sequence(2, max_new=4), 4.5 * STEP)
    assert timed.step() == [2]
    assert late.status is Status.WAITING


def test_one_that_runs_behind_its_deadline_is_preempted_first_where_memory_runs_out() -> None:
    timed = learned()
    late = add(timed, make_sequence(1, max_new=60), 1.5 * STEP)
    kept = add(timed, make_sequence(2, max_new=60), 60.0)
    for _ in range(3):
        timed.step()
    batch = timed.scheduler._batch
    assert batch.running == [late, kept]
    assert batch._last(without=None) is late


def test_one_that_is_too_long_alone_costs_no_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = learned()
    for id in range(2, 9):
        add(timed, make_sequence(id))
    looked_at, work = set(), timed.scheduler.promises._work

    def noted(sequence: Sequence) -> Work:
        looked_at.add(sequence.id)
        return work(sequence)

    monkeypatch.setattr(timed.scheduler.promises, "_work", noted)
    verdict = timed.ask(9, STEP)
    assert not verdict.can_be_met
    assert verdict.alone.total > verdict.left
    assert looked_at == {9}
