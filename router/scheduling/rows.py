"""The rows that a sequence gets in a plan."""

from collections.abc import Sequence as Items

from penstock.contract.initial_state import InitialState
from penstock.contract.row import Row
from penstock.router.scheduling.fork import Fork
from penstock.router.scheduling.guesser import PROPOSED
from penstock.router.scheduling.sequence import Sequence


def decode_row(sequence: Sequence, guesses: Items[int]) -> Row:
    """Makes the row for a sequence's next token, with guesses of those that follow. The shards know its last token,
    unless it is a beam's, or guesses were verified or are brought."""
    assert sequence.slot is not None
    num_proposals = len(guesses) if PROPOSED in guesses else 0
    brought = () if num_proposals else guesses
    is_brought = sequence.is_verifying or sequence.is_beam or bool(brought)
    return Row(
        slot=sequence.slot, start=sequence.computed, from_last_sample=not is_brought,
        token_ids=(sequence.tokens[-1], *brought) if is_brought else (), new_blocks=sequence.unsent_blocks,
        late_mask=_waits(sequence, sequence.computed + 1 + len(brought)),
        num_drafts=len(brought), num_proposals=num_proposals, is_decode=True)


def fork_row(sequence: Sequence, fork: Fork, guesses: Items[int]) -> Row:
    """Makes the row with which a fork verifies guesses of what follows a sequence's last token."""
    return Row(
        slot=fork.slot, start=len(sequence.tokens) - 1, token_ids=(sequence.tokens[-1], *guesses),
        num_drafts=len(guesses), is_decode=True, new_blocks=(*sequence.blocks[:fork.num_shared], *fork.blocks),
        initial_state=initial_state(sequence))


def prefill_row(sequence: Sequence, end: int) -> Row:
    """Makes the row for the tokens of a sequence's prefill up to `end`."""
    assert sequence.slot is not None
    start, is_last = sequence.computed, end == sequence.prefill_end
    return Row(
        slot=sequence.slot, start=start, token_ids=tuple(sequence.tokens[start:end]),
        new_blocks=sequence.unsent_blocks, output=sequence.outputs[is_last],
        initial_state=initial_state(sequence) if not sequence.is_told else None,
        late_mask=is_last and _waits(sequence, end), prompt_logprob_ids=sequence.prompt_logprob_ids(start, end))


def _waits(sequence: Sequence, place: int) -> bool:
    """Tells whether a row that samples tokens up to the one at `place` waits for masks."""
    return sequence.has_grammar and place - sequence.prompt_length >= sequence.num_free


def initial_state(sequence: Sequence) -> InitialState:
    """Says what a shard must know of a sequence before its first row in a slot."""
    history = tuple(sequence.tokens) if sequence.sampling.needs_history else ()
    side_inputs = {each.name: each.value for each in sequence.side_inputs}
    return InitialState(sequence.sampling, sequence.prompt_length, history, side_inputs)
