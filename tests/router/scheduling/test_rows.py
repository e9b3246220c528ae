"""What shards are told of a sequence before its first row."""

import pytest

from penstock.contract.sampling import Sampling
from penstock.router.scheduling.rows import initial_state
from penstock.router.scheduling.sequence import Sequence

PAIR = Sampling(bad_word_ids=(5, 7, 8), bad_word_lengths=(1, 2))


@pytest.mark.parametrize(("sampling", "is_needed"), [
    (Sampling(), False), (Sampling(repetition_penalty=1.5), True), (PAIR, True),
    (Sampling(bad_word_ids=(5, 7), bad_word_lengths=(1, 1)), False)])
def test_the_history_is_told_to_what_needs_it(sampling: Sampling, is_needed: bool) -> None:
    """With the output so far: one that was preempted may find that in the prefix cache, so that no row has it."""
    sequence = Sequence(id=1, tokens=[3, 4, 7], prompt_length=2, max_length=9, sampling=sampling)
    assert tuple(initial_state(sequence).history_ids) == ((3, 4, 7) if is_needed else ())
