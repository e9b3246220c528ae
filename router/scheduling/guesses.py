"""The guesses that the rows of a class of sequences bring."""

from collections.abc import Iterable
from collections.abc import Sequence as Items
from itertools import islice

from penstock.router.scheduling.batch import Batch
from penstock.router.scheduling.in_order import of_class
from penstock.router.scheduling.plan_builder import PlanBuilder
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.speculation.speculation import Speculation


def choose_guesses(
    speculation: Speculation | None, batch: Batch, ready: Items[Sequence], waiting: Iterable[Sequence],
    builder: PlanBuilder, is_background: bool,
) -> dict[int, tuple[int, ...]]:
    """Returns the guesses of a class to verify, by the ids of their sequences. They leave a token for each sequence,
    and room for those of the class that wait, given in the order in which they are to run."""
    if speculation is None:
        return {}
    running = of_class(batch.running, is_background)
    prompts = [s for s in ready if s.is_prefilling]
    if batch.memory.num_available > len(running):
        prompts += islice(waiting, len(batch.free_slots))
    return speculation.choose_beside(running, prompts, builder.budget - len(ready))
