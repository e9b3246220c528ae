"""The order of one step."""

from dataclasses import dataclass

from penstock.contract.admission import Admission
from penstock.contract.block_copy import BlockCopy
from penstock.contract.row import Row


@dataclass(frozen=True, slots=True)
class Plan:
    """Orders one step. `step_id` is consecutive; the slots in `cleared_slots` were released since the last plan. The
    `block_copies` are made before the rows run.

    `admitted` and `preempted` are causes, not orders: the sequences that begin to run with this step, and the ids of
    those that had to let go of their blocks since the last plan. `masked` names the rows that wait for a mask, each by
    its slot, its sequence's id and its drafts. `chunks` are the prefills of sequences whose requests are traced: a
    sequence's id, the first position, the number of tokens.
    """

    step_id: int
    rows: tuple[Row, ...]
    cleared_slots: tuple[int, ...] = ()
    block_copies: tuple[BlockCopy, ...] = ()
    admitted: tuple[Admission, ...] = ()
    preempted: tuple[int, ...] = ()
    masked: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    chunks: tuple[tuple[int, int, int], ...] = ()

    @property
    def num_tokens(self) -> int:
        """How many input tokens all rows have."""
        return sum(row.num_inputs for row in self.rows)

    @property
    def num_rounds(self) -> int:
        """How often the draft model runs for proposals, one after the other."""
        return max((row.num_proposals for row in self.rows), default=0)

    @property
    def num_decode_rows(self) -> int:
        """How many rows only continue from a sampled token: of sequences, and of their forks."""
        return sum(row.is_decode for row in self.rows)

    @property
    def num_prompt_tokens(self) -> int:
        """How many input tokens are of prompts and of replays."""
        return sum(row.num_inputs for row in self.rows if not row.is_decode)
