"""Whose turn it is where a step passes through several stages: they are busy only while other steps follow it."""

from collections.abc import Sequence as Items

from penstock.router.scheduling.sequence import Sequence


def next_microbatch(running: Items[Sequence], number: int, has_more: bool) -> Items[Sequence]:
    """Returns the running sequences, in their order, that the next step may have rows of.

    With several turns a sequence decodes in one of so many steps, of which as many are in flight: so none of them waits
    for what another samples. Where there are no prompts either, nor does the step have more, those in flight come
    again: a step that waits on its way is better than none.
    """
    ready = [sequence for sequence in running if not sequence.is_held_back]
    if number == 1:
        return ready
    idle = [sequence for sequence in ready if sequence.wants_decode and not sequence.in_flight]
    if not idle and not has_more and not any(sequence.is_prefilling for sequence in ready):
        return ready
    share = -(-sum(sequence.wants_decode for sequence in running) // number)
    turn = {sequence.id for sequence in idle[:share]}
    return [sequence for sequence in ready if sequence.is_prefilling or sequence.id in turn]
