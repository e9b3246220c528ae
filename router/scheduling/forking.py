"""Makes the forks of a sequence, and chooses between the answers of the sequence's row and of its forks'."""

from penstock.contract.block_copy import BlockCopy
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from penstock.router.scheduling.fork import Fork
from penstock.router.scheduling.guesser import Alternative
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.rows import initial_state
from penstock.router.scheduling.sequence import Sequence


def blocks_needed(sequence: Sequence, number: int, memory: KvMemory) -> int:
    """Returns how many blocks a fork with so many guesses takes."""
    return memory.blocks_for(len(sequence.tokens) + number) - (len(sequence.tokens) - 1) // memory.block_size


def make_fork(sequence: Sequence, other: Alternative, slot: int, memory: KvMemory) -> Fork:
    """Takes blocks for a fork that verifies other guesses in `slot`. No step in flight names the sequence."""
    start, guesses = len(sequence.tokens) - 1, other.token_ids
    num_shared, num_written = divmod(start, memory.block_size)
    blocks = memory.allocate(blocks_needed(sequence, len(guesses), memory))
    row = Row(
        slot=slot, start=start, token_ids=(sequence.tokens[-1], *guesses), num_drafts=len(guesses), is_decode=True,
        new_blocks=(*sequence.blocks[:num_shared], *blocks), initial_state=initial_state(sequence))
    copies = (BlockCopy(sequence.blocks[num_shared], blocks[0]),) if num_written else ()
    return Fork(slot, blocks, num_shared, row, len(guesses) - other.num_shared, copies)


def take_answer(sequence: Sequence, row: Row, answers: dict[int, RowResult]) -> tuple[Row, RowResult | None]:
    """Takes the answers of a sequence's row and of its forks, by their slots, if the row has any. Returns the one with
    the most right guesses, and its row: the sequence goes on with that, and a fork that is taken gets what it leaves.
    """
    if not row.is_answered:
        return row, None
    assert row.slot in answers, f"no result for slot {row.slot}"
    answer, best = answers.pop(row.slot), None
    for fork in sequence.forks:
        assert fork.slot in answers, f"no result for slot {fork.slot}"
        other = answers.pop(fork.slot)
        if len(other.token_ids) > len(answer.token_ids):
            answer, best = other, fork
    if best is not None:
        row, best.row = best.row, row
        sequence.slot, best.slot = best.slot, sequence.slot
        shared = best.num_shared
        sequence.blocks[shared:], best.blocks = best.blocks, sequence.blocks[shared:]
        sequence.num_blocks_sent = len(sequence.blocks)
        sequence.computed = row.start + row.num_inputs
    return row, answer
