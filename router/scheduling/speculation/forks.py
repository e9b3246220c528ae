"""The forks that verify other guesses of how sequences go on than their rows do."""

from penstock.router.scheduling.batch import Batch
from penstock.router.scheduling.fork import GuessFork
from penstock.router.scheduling.plan_builder import PlanBuilder
from penstock.router.scheduling.rows import fork_row
from penstock.router.scheduling.speculation.speculation import Speculation


def add_forks(speculation: Speculation | None, batch: Batch, builder: PlanBuilder) -> None:
    """Adds forks that verify other guesses beside the rows of a step, where nobody waits for what they take."""
    if speculation is None or not batch.free_slots:
        return
    for sequence, other in speculation.choose_forks(builder.rows, builder.budget):
        guesses = other.token_ids
        if (fork := batch.fork(sequence, len(guesses))) is not None:
            builder.add_fork(sequence, GuessFork(
                fork.slot, fork.blocks, fork.num_shared, fork.copies, fork_row(sequence, fork, guesses),
                len(guesses) - other.num_shared))
