"""Tenants are served by their shares: what they get, counted from outside, stays within the paper's bound."""

from collections.abc import Callable

import pytest

from penstock.router.scheduling.priorities import BACKGROUND
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Status
from penstock.router.scheduling.shares import INPUT, OUTPUT, Shares
from penstock.router.scheduling.tenant import KvQuota, Tenant
from penstock.router.scheduling.wait_reasons import WaitReason
from tests.router.scheduling import faulty_shares
from tests.router.scheduling.small_schedulers import answer, make_scheduler, make_sequence, planned, step
from tests.router.scheduling.tenants import Tenanted, TenantsSimulation, Traffic
from tests.router.scheduling.test_plan_cost import work
from tests.router.scheduling.test_simulation import DEPTHS

A, B, C = Tenant("a", 1), Tenant("b", 1), Tenant("c", 3)
LONGEST_PROMPT, NUM_BLOCKS = 40, 26


def jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value ** 2 for value in values))


def check_flood(shares: type[Shares], seed: int = 1) -> None:
    """The first tenant sends ten requests for each of the others, and long ones; all have some waiting all the time."""
    traffic = Traffic(seed, shares, NUM_BLOCKS, max_slots=8)
    most, chance = 0.0, traffic.random
    for _ in range(1500):
        for tenant, backlog in ((A, 40), (B, 4), (C, 4)):
            while traffic.num_waiting(tenant) < backlog:
                length = chance.randint(20, LONGEST_PROMPT) if tenant is A else chance.randint(2, 8)
                traffic.add(tenant, length, chance.randint(2, 30))
        traffic.step()
        got = [traffic.served[tenant.name] / (tenant.share or 1) for tenant in (A, B, C)]
        most = max(most, max(got) - min(got))
    bound = 2 * max(INPUT * LONGEST_PROMPT, OUTPUT * NUM_BLOCKS * 4)
    assert traffic.num_preempted > 10, "memory was never short"
    assert min(got) > 5 * bound, "too little happened"
    assert most <= bound, f"{got}: one is {most} ahead, the bound is {bound}"
    assert jain(got) >= 0.99


def check_return(shares: type[Shares]) -> None:
    """One that has not asked for long has no claim to all that comes; nor has the one that was there before."""
    traffic = Traffic(1, shares, 100, max_slots=2)
    for _ in range(30):
        traffic.add(A, 8, 8)
    for _ in range(60):
        traffic.step()
    before = dict(traffic.served)
    assert before["a"] > 300
    for _ in range(30):
        traffic.add(B, 8, 8)
    for _ in range(80):
        traffic.step()
    got = traffic.served["a"] - before["a"], traffic.served["b"]
    assert max(got) - min(got) < 60, f"after its return one gets {got}"


def check_preemption(shares: type[Shares]) -> None:
    """The one that is ahead makes room for the other, though it came first; what it computes again is not charged."""
    traffic = Traffic(1, shares, num_blocks=12, max_slots=4)
    ahead = traffic.add(A, 20, 20)
    for _ in range(4):
        traffic.step()
    other = traffic.add(C, 8, 30)
    while not traffic.num_preempted:
        traffic.step()
    assert (other.status, ahead.status) == (Status.RUNNING, Status.WAITING)
    while other.id in traffic.sequences:
        traffic.step()
    while ahead.id in traffic.sequences:
        traffic.step()
    assert traffic.scheduler._waiting.shares.served(ahead) == traffic.served["a"] == INPUT * 20 + OUTPUT * 20


def check_background(shares: type[Shares]) -> None:
    """What a tenant has in the background costs it nothing where others wait."""
    traffic = Traffic(1, shares, 100, max_slots=1)
    for _ in range(20):
        traffic.add(A, 8, 8, priority=BACKGROUND)
    for _ in range(100):
        traffic.step()
    assert traffic.served["a"] > 100
    [b, a, _] = [traffic.add(tenant, 8, 8) for tenant in (B, A, B)]
    while b.id in traffic.sequences or a.status is Status.WAITING:
        traffic.step()
    assert len(traffic.sequences) > 1
    assert traffic.num_waiting(B) == 1


CHECKS: list[Callable[[type[Shares]], None]] = [check_flood, check_return, check_preemption, check_background]


@pytest.mark.parametrize("check", CHECKS)
def test_service_follows_shares(check: Callable[[type[Shares]], None]) -> None:
    check(Shares)


@pytest.mark.parametrize("faulty", faulty_shares.ALL)
def test_every_planted_fault_is_found(faulty: type[Shares]) -> None:
    for check in CHECKS:
        try:
            check(faulty)
        except AssertionError:
            return
    pytest.fail("no check finds it")


@pytest.mark.parametrize("depth", DEPTHS)
def test_traffic_of_tenants_keeps_the_invariants(depth: int) -> None:
    simulation = TenantsSimulation(7, depth, Tenanted, guesses=3)
    simulation.run(700)
    for what, least in {"steps": 300, "ended": 30, "preempted": 2, "hits": 10, "losses": 1, "accepted": 20,
                        "looks at lanes": 500}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"


def test_within_a_tenant_the_order_is_that_of_arrival_and_priority() -> None:
    traffic = Traffic(1, Shares, 100, max_slots=1)
    late, early, urgent = (traffic.add(A, 4, 2, priority=priority) for priority in (1, 0, -2))
    ended = []
    while traffic.sequences:
        traffic.step()
        ended += [each for each in (late, early, urgent) if each.id not in traffic.sequences and each not in ended]
    assert ended == [urgent, early, late]


def test_one_of_nobody_has_a_share_of_one_where_others_have_shares() -> None:
    """As the lines of a batch that came before its key had one."""
    scheduler = make_scheduler(max_slots=1)
    for id in range(4):
        scheduler.add(make_sequence(id, max_new=1))
    own = make_sequence(4, max_new=1)
    own.tenant = B
    scheduler.add(own)
    step(scheduler, 7)
    planned(scheduler)
    assert own.status is Status.RUNNING


def test_a_tenant_holds_no_more_memory_than_its_quota() -> None:
    """Others pass; in a flood of thousands the plan looks at one. What comes back after a loss is counted once."""
    traffic = Traffic(1, Shares, 100, max_slots=8)
    tenant, other = Tenant("a", kv_quota=KvQuota(10, True)), Tenant("b")
    flood = [traffic.add(tenant, 8, 8) for _ in range(600)]
    late = [traffic.add(other, 8, 8) for _ in range(2)]
    traffic.step()
    assert [each.status is Status.RUNNING for each in (*flood[:3], *late)] == [True, True, False, True, True]
    assert traffic.scheduler._waits.numbers == {WaitReason.QUOTA: 598}
    assert work(traffic.scheduler.plan) < 5000
    traffic.scheduler.forget_all()
    traffic.plans.clear()
    while late[1].id in traffic.sequences:
        traffic.step()
        assert sum(each.max_length for each in flood if each.slot is not None) <= 40
    assert traffic.served["a"] > 0


def test_a_request_that_is_more_than_its_quota_runs_alone() -> None:
    traffic = Traffic(1, Shares, 100, max_slots=8)
    first, second = (traffic.add(Tenant("a", kv_quota=KvQuota(10, False)), 8, 8) for _ in range(2))
    traffic.step()
    assert (first.status, second.status) == (Status.RUNNING, Status.WAITING)
    while traffic.sequences:
        traffic.step()


def test_without_shares_tenants_with_quotas_come_in_the_order_of_arrival() -> None:
    traffic = Traffic(1, Shares, 100, max_slots=1)
    quota = KvQuota(100, True)
    came = [traffic.add(Tenant(name, kv_quota=quota), 4, 2) for name in "aababbb"]
    ended: list[int] = []
    while traffic.sequences:
        traffic.step()
        ended += [each.id for each in came if each.id not in traffic.sequences and each.id not in ended]
    assert ended == [each.id for each in came]


def test_a_plan_is_no_more_work_for_those_of_tenants_that_find_no_room() -> None:
    def busy(num_waiting: int) -> Scheduler:
        scheduler = Scheduler(block_size=16, num_blocks=4000, max_slots=64, max_step_tokens=4096)
        for id in range(32 + num_waiting):
            sequence = make_sequence(id, length=900 if id >= 32 else 8, max_new=1000)
            sequence.tenant = (A, B)[id % 2]
            scheduler.add(sequence)
            if id == 31:
                scheduler.commit(answer(planned(scheduler), *[7] * 32))
        return scheduler

    few, many = (work(busy(number).plan) for number in (10, 500))
    assert many < few + 200
