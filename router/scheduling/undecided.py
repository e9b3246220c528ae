"""Which beams make room for sequences that wait.

A beam whose candidates have come is undecided until all other beams of its search are as far. Meanwhile it computes
nothing, and holds a slot and blocks, which the others may need: so it has no right to them where others wait.
"""

from collections.abc import Callable
from collections.abc import Sequence as Items

from penstock.router.scheduling.admission import AdmissionRound
from penstock.router.scheduling.batch import Batch, by_order
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.wait_reasons import WaitReason

_NO_ROOM = (WaitReason.SLOTS, WaitReason.MEMORY, WaitReason.OTHERS)


def make_room(
    batch: Batch, waiting: Items[Sequence], admissions: Callable[[], AdmissionRound], is_stalled: bool
) -> bool:
    """Preempts undecided beams, the last first, until the first of the waiting sequences that may run has room, as a
    round of `admissions` says. Returns whether any gave way.

    Only those give way that do not come before it: so do beams of one search to each other. Where all `is_stalled`, as
    nothing runs, others do so too, for they may wait for one that waits for a trial.
    """
    undecided = [sequence for sequence in batch.running if sequence.is_undecided]
    num_undecided = len(undecided)
    while undecided:
        first = _first_without_room(admissions(), waiting)
        if first is None or (by_order(undecided[-1]) < by_order(first) and not is_stalled):
            break
        batch.evict(undecided.pop())
    return len(undecided) < num_undecided


def _first_without_room(admissions: AdmissionRound, waiting: Items[Sequence]) -> Sequence | None:
    """Returns the first of those that may run, if it has no room."""
    for sequence in waiting:
        reason = admissions.obstacle_to(sequence) or admissions.obstacle_to_all(budget=1)
        if reason in _NO_ROOM:
            return sequence
        if reason is None:
            return None
    return None
