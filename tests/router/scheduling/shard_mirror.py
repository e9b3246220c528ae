"""A shard made of hashes: a position's keys and values are a hash of all tokens up to it, and so is the next token."""

import math
from dataclasses import dataclass, field

from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult, TopLogprobs
from penstock.contract.step_result import StepResult

EOS = 1
Mask = frozenset[int]
"""The tokens that a grammar allows."""
PARITIES = Mask(range(0, 64, 2)), Mask(range(1, 64, 2))


def extend(chain: list[int], token_id: int) -> None:
    """Append what the position of one more token holds; the first element stands for the namespace."""
    chain.append(hash((chain[-1], token_id)))


def chain_of(namespace: int, tokens: list[int]) -> list[int]:
    """What the positions of `tokens` hold, behind an element for the namespace."""
    chain = [namespace]
    for token_id in tokens:
        extend(chain, token_id)
    return chain


def sample(value: int, salt: int, mask: Mask | None) -> int:
    """The token after a position that holds `value`: one in 24 is the end token. A mask is one of PARITIES."""
    choice = hash((value, salt)) % 24
    token_id = EOS if choice == 0 else choice + 1
    return token_id if mask is None or token_id in mask else token_id + 1


def candidates(value: int, salt: int, mask: Mask | None, number: int) -> TopLogprobs:
    """The likeliest tokens after a position that holds `value`, of 25; hardly two have the same logprob."""
    allowed = [token_id for token_id in range(1, 26) if mask is None or token_id in mask]
    tops = [(token_id, -1 - hash((value, salt, token_id)) % 10007 / 1000) for token_id in allowed]
    return tuple(sorted(tops, key=lambda top: (-top[1], top[0]))[:number])


def made_logprob(value: int, token_id: int) -> int:
    """The logprob that a token is given after a position that holds `value`."""
    return hash((value, token_id)) % 1000


@dataclass(slots=True)
class Resident:
    """A slot: its block table, what each position must hold, the sampling's seed, the adapter, the token sampled last,
    how many guesses its last row had, of which no sample was kept, and how many top logprobs it wants."""

    chain: list[int]
    salt: int
    adapter: int
    blocks: list[int] = field(default_factory=list)
    last_token: int | None = None
    num_guesses: int = 0
    top_n: int = 0


class ShardMirror:
    """Runs plans as a shard does, and sees for every row that memory holds what its sequence has written there.

    A row reads all positions before it, so a block that was shared too early, given to two sequences, or taken back
    while a row still used it shows as a wrong value.
    """

    def __init__(self, block_size: int, num_blocks: int) -> None:
        self.memory: list[list[int | None]] = [[None] * block_size for _ in range(num_blocks)]
        self.adapters: set[int] = set()
        """Those that are loaded."""
        self._block_size = block_size
        self._slots: dict[int, Resident] = {}
        self._next_step_id = 0

    def run(self, plan: Plan, firsts: dict[int, Resident], masks: dict[int, list[Mask]]) -> StepResult:
        """Run a step. `firsts` are the new residents by slot: the tokens behind a prefix hit come with no row.

        `masks` by slot, one for each sample, may name only rows that wait for some.
        """
        assert plan.step_id == self._next_step_id, f"step {plan.step_id} comes after {self._next_step_id - 1}"
        self._next_step_id += 1
        for slot in plan.cleared_slots:
            assert slot in self._slots, f"slot {slot} is cleared but holds no sequence"
            del self._slots[slot]
        for copy in plan.block_copies:
            self.memory[copy.target] = list(self.memory[copy.source])
        for row in plan.rows:
            if row.initial_state is not None:
                assert row.slot not in self._slots, f"slot {row.slot} is given out twice"
                self._slots[row.slot] = firsts[row.slot]
                self._slots[row.slot].top_n = row.initial_state.sampling.top_n
        assert masks.keys() <= {row.slot for row in plan.rows if row.late_mask}, "a mask comes that no row waits for"
        results = [self._run_row(row, masks.get(row.slot)) for row in plan.rows]
        return StepResult(plan.step_id, tuple(
            result for row, result in zip(plan.rows, results, strict=True) if row.is_answered))

    def successor(self) -> "ShardMirror":
        """The shard that comes after this one died: it has its memory, and nothing else."""
        successor = ShardMirror(self._block_size, 0)
        successor.memory = self.memory
        return successor

    def blocks(self, slot: int) -> list[int]:
        return self._slots[slot].blocks

    def holds(self, block: int, values: list[int]) -> bool:
        """Whether the first positions of a block hold `values`."""
        return self.memory[block][:len(values)] == values

    def _run_row(self, row: Row, masks: list[Mask] | None) -> RowResult:
        resident = self._slots[row.slot]
        assert not resident.adapter or resident.adapter in self.adapters, (
            f"slot {row.slot} needs the adapter {resident.adapter}, which is not loaded")
        resident.blocks += row.new_blocks
        chain, size = resident.chain, self._block_size
        if resident.num_guesses:
            num_wrong = len(chain) - 1 - row.start
            assert 0 <= num_wrong <= resident.num_guesses, f"slot {row.slot}: {num_wrong} drafts are taken back"
            del chain[row.start + 1:]
        assert row.start == len(chain) - 1, f"slot {row.slot}: a row starts at {row.start}, not at {len(chain) - 1}"
        for index in range(-(-row.start // size)):
            values = chain[1 + index * size:1 + min((index + 1) * size, row.start)]
            assert self.holds(resident.blocks[index], values), (
                f"slot {row.slot} reads block {resident.blocks[index]} at {index * size}: it holds other tokens")
        inputs = [*([resident.last_token] if row.from_last_sample else []), *row.token_ids]
        proposals = self._propose(resident, inputs, row.num_proposals)
        inputs += proposals
        for token_id in inputs:
            assert token_id is not None, f"slot {row.slot} goes on from a token that was never sampled"
            index, offset = divmod(len(chain) - 1, size)
            extend(chain, token_id)
            assert index < len(resident.blocks), f"slot {row.slot} has no block for position {len(chain) - 2}"
            self.memory[resident.blocks[index]][offset] = chain[-1]
        logprobs = tuple(float(made_logprob(self._read(resident, row.start + index), token_id))
                       for index, token_id in enumerate(row.prompt_logprob_ids))
        if row.output is Output.NONE:
            return RowResult(row.slot, (), (), prompt_logprobs=logprobs)
        first, resident.num_guesses = len(chain) - 2 - row.num_guesses, row.num_guesses
        if resident.top_n:
            top = candidates(self._read(resident, first), resident.salt, masks[0] if masks else None, resident.top_n)
            if not top:
                return RowResult(row.slot, (EOS,), (-math.inf,), ((),), logprobs)
            resident.last_token = top[0][0]
            return RowResult(row.slot, top[0][:1], top[0][1:], (top,), logprobs)
        samples = [sample(self._read(resident, first + index), resident.salt, masks[index] if masks else None)
                   for index in range(row.num_guesses + 1)]
        resident.last_token = None if row.num_guesses else samples[0]
        guesses = [*row.drafts, *proposals]
        num_right = next((i for i, guess in enumerate(guesses) if samples[i] != guess), len(guesses))
        kept = tuple(samples[:num_right + 1])
        return RowResult(row.slot, kept, (-1.0,) * len(kept), prompt_logprobs=logprobs)

    def _propose(self, resident: Resident, inputs: list[int | None], number: int) -> list[int]:
        """What a draft model says that goes wrong after each token of an odd hash."""
        chain = list(resident.chain)
        for token_id in inputs:
            assert token_id is not None, "proposals follow a token that was never sampled"
            extend(chain, token_id)
        proposals: list[int] = []
        while len(proposals) < number:
            truth = sample(chain[-1], resident.salt, None)
            proposals.append(truth if chain[-1] % 4 else truth + 1)
            extend(chain, proposals[-1])
        return proposals

    def _read(self, resident: Resident, position: int) -> int:
        """What the memory holds for a position."""
        index, offset = divmod(position, self._block_size)
        value = self.memory[resident.blocks[index]][offset]
        assert value is not None
        return value
