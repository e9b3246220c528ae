"""Which beams make room for sequences that wait.

A beam whose candidates have come is undecided until all other beams of its search are as far. Meanwhile it computes
nothing, and holds a slot, blocks and its adapter, where the others may need them or wait for those who do: so it has
no right to them where others wait.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items

from penstock.router.scheduling.adapter_fairness import adapter_victim
from penstock.router.scheduling.admission import AdmissionRound
from penstock.router.scheduling.batch import Batch
from penstock.router.scheduling.in_order import by_order
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.wait_reasons import WaitReason

_NO_ROOM = (WaitReason.SLOTS, WaitReason.MEMORY, WaitReason.OTHERS)


def make_room(
    batch: Batch, waiting: Iterable[Sequence], admissions: Callable[[], AdmissionRound], is_stalled: bool
) -> bool:
    """Preempts undecided beams, the last first, until the first of the waiting sequences that may run has room, as a
    round of `admissions` says, and those before it have room for their adapters. One for which the memory of all of
    them would not be enough is passed by, as elsewhere. Returns whether any gave way.

    Only those give way that do not come before it: so do beams of one search to each other. Where all `is_stalled`, as
    nothing runs, others do so too, for they may wait for one that waits for a trial.
    """
    undecided = [sequence for sequence in batch.running if sequence.is_undecided]
    num_undecided = len(undecided)
    while undecided and (victim := _victim(batch, undecided, waiting, admissions(), is_stalled)) is not None:
        undecided.remove(victim)
        batch.evict(victim)
    return len(undecided) < num_undecided


def _victim(
    batch: Batch, undecided: Items[Sequence], waiting: Iterable[Sequence], admissions: AdmissionRound, is_stalled: bool
) -> Sequence | None:
    """Returns the undecided beam that is to give way next, if any is."""
    for sequence in waiting:
        reason = admissions.obstacle_to(sequence) or admissions.obstacle_to_all(budget=1)
        able = [each for each in undecided if is_stalled or by_order(each) >= by_order(sequence)]
        if reason is WaitReason.ADAPTER:
            if victim := adapter_victim(sequence, able, batch.adapters):
                return victim
        elif reason is None or (reason in _NO_ROOM and not able):
            return None
        elif reason in _NO_ROOM:
            if is_stalled or reason is not WaitReason.MEMORY or admissions.would_have_room(sequence, able):
                return able[-1]
            if admissions.is_overdue:
                return None
    return None
