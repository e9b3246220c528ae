"""Orders for tests: what a router would send for some requests, written down before anything runs.

That is possible because a decode row names its input as "the token sampled last", so no step depends on a result.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.stream_limits import StreamLimits
from tests.adapter_inputs import adapter_value

GREEDY = Sampling()
BLOCK_SIZE = 16


@dataclass(frozen=True)
class Request:
    """`mask_seed`: what may be sampled is said by masks that come late, and are a matter of chance."""

    prompt: Sequence[int]
    num_tokens: int
    sampling: Sampling = GREEDY
    mask_seed: int | None = None
    wants_prompt_logprobs: bool = False
    adapter: int = 0


@dataclass
class Program:
    """`owners[i]`: for each row of step i that yields something, the request it belongs to. `mask_seeds[i]`: for each
    slot that waits for a mask, the seed of the mask."""

    limits: StreamLimits
    steps: list[Plan] = field(default_factory=list)
    owners: list[list[int]] = field(default_factory=list)
    mask_seeds: list[dict[int, int]] = field(default_factory=list)

    def masks(self, index: int, vocab_size: int) -> dict[int, npt.NDArray[np.int32]]:
        """Of step `index`, for each slot that waits."""
        if not self.mask_seeds:
            return {}
        return {slot: make_mask(seed, vocab_size) for slot, seed in self.mask_seeds[index].items()}


@dataclass
class _Sequence:
    request: Request
    slot: int
    position: int = 0

    @property
    def end(self) -> int:
        """The last sampled token is never an input."""
        return len(self.request.prompt) + self.request.num_tokens - 1


def mask_seed_at(request: Request, position: int) -> int:
    """Of the mask for the token at a position."""
    return 1000 * (request.mask_seed or 0) + position


def make_mask(seed: int, vocab_size: int) -> npt.NDArray[np.int32]:
    """Allows about half of the tokens; [1, words], for one sampled token."""
    return np.random.default_rng(seed).integers(-(2**31), 2**31, (1, -(-vocab_size // 32))).astype(np.int32)


def make_row(
    slot: int = 0, start: int = 0, token_ids: Sequence[int] = (), from_last_sample: bool = False,
    new_blocks: Sequence[int] = (), is_sampled: bool = True, initial_state: InitialState | None = None,
    late_mask: bool = False,
    prompt_logprob_ids: Sequence[int] = (), num_drafts: int = 0, num_proposals: int = 0,
) -> Row:
    return Row(slot, start, tuple(token_ids), from_last_sample, tuple(new_blocks),
               Output.SAMPLE if is_sampled else Output.NONE, initial_state, late_mask, tuple(prompt_logprob_ids),
               num_drafts, num_proposals)


def initial(
    prompt_length: int, sampling: Sampling = GREEDY, history: Sequence[int] = (), adapter: int = 0
) -> InitialState:
    return InitialState(sampling, prompt_length, tuple(history), adapter_value(adapter))


def prompt_step(step_id: int, slot: int = 0, length: int = 8) -> Plan:
    """One prompt in the blocks from 0 on, greedy."""
    blocks = range(-(-length // BLOCK_SIZE))
    row = make_row(slot, 0, range(3, 3 + length), new_blocks=blocks, initial_state=initial(length))
    return Plan(step_id, (row,))


def alone(requests: Sequence[Request], num_blocks: int = 256, chunk: int | None = None) -> Program:
    """Request after request, each prompt whole or in chunks of `chunk`, with nothing beside it."""
    def one_at_a_time() -> Iterator[list[tuple[int, int]]]:
        for index, request in enumerate(requests):
            left = len(request.prompt)
            while left:
                count = min(chunk or left, left)
                yield [(index, count)]
                left -= count
            yield from [[(index, 1)]] * (request.num_tokens - 1)
    return _write(requests, one_at_a_time(), num_blocks, lambda blocks: blocks)


def batched(
    requests: Sequence[Request], seed: int, num_blocks: int = 256, chunks: Sequence[int] = (1, 3, 16, 17, 64),
    max_running: int = 64,
) -> Program:
    """All requests together: they start at odd times, prompts come in odd chunks, beside the others' decode rows."""
    rng = np.random.default_rng(seed)

    def mixed() -> Iterator[list[tuple[int, int]]]:
        waiting, running = list(range(len(requests))), []
        done = dict.fromkeys(waiting, 0)
        while waiting or running:
            while waiting and len(running) < max_running and (not running or rng.random() < 0.5):
                running.append(waiting.pop(0))
            rng.shuffle(running)
            picked = []
            for index in running:
                left = len(requests[index].prompt) - done[index]
                count = min(int(rng.choice(list(chunks))), left) if left > 0 else 1
                picked.append((index, count))
                done[index] += count
            yield picked
            running = [i for i in running if done[i] < len(requests[i].prompt) + requests[i].num_tokens - 1]

    def shuffle(blocks: list[int]) -> list[int]:
        return [int(block) for block in rng.permutation(blocks)]
    return _write(requests, mixed(), num_blocks, shuffle)


def _write(
    requests: Sequence[Request], schedule: Iterator[list[tuple[int, int]]], num_blocks: int,
    order: Callable[[list[int]], list[int]],
) -> Program:
    """`schedule`: per step, (request, number of input tokens) of each row. Slots and blocks are used again."""
    program = Program(StreamLimits(len(requests), max_step_tokens=1 << 20, max_blocks_per_slot=num_blocks, epoch=1))
    blocks, slots = order(list(range(num_blocks))), list(range(len(requests)))
    held: dict[int, tuple[_Sequence, list[int]]] = {}
    cleared: list[int] = []
    for picked in schedule:
        rows, owners, seeds, ended = [], [], {}, []
        for index, count in picked:
            is_first = index not in held
            if is_first:
                held[index] = _Sequence(requests[index], slots.pop(0)), []
            sequence, own = held[index]
            needed = -(-(sequence.position + count) // BLOCK_SIZE) - len(own)
            new_blocks = [blocks.pop() for _ in range(needed)]
            own += new_blocks
            rows.append(_row(sequence, count, new_blocks, is_first))
            sequence.position += count
            owners += [index] * (rows[-1].is_sampled or len(rows[-1].prompt_logprob_ids) > 0)
            if rows[-1].late_mask:
                seeds[sequence.slot] = mask_seed_at(requests[index], rows[-1].end)
            if sequence.position == sequence.end:
                ended.append(index)
        program.steps.append(Plan(len(program.steps), tuple(rows), tuple(cleared)))
        program.owners.append(owners)
        program.mask_seeds.append(seeds)
        cleared = []
        for index in ended:
            sequence, own = held.pop(index)
            blocks += own
            slots.append(sequence.slot)
            cleared.append(sequence.slot)
    return program


def _row(sequence: _Sequence, count: int, new_blocks: list[int], is_first: bool) -> Row:
    prompt, sampling = sequence.request.prompt, sequence.request.sampling
    is_decode = sequence.position >= len(prompt)
    end = sequence.position + count
    return make_row(
        slot=sequence.slot, start=sequence.position, from_last_sample=is_decode,
        token_ids=() if is_decode else prompt[sequence.position:end], new_blocks=new_blocks,
        is_sampled=end >= len(prompt), late_mask=sequence.request.mask_seed is not None and end >= len(prompt),
        prompt_logprob_ids=prompt[sequence.position + 1:end + 1] if sequence.request.wants_prompt_logprobs else (),
        initial_state=initial(len(prompt), sampling, prompt if sampling.needs_history else (),
                              sequence.request.adapter) if is_first else None)
