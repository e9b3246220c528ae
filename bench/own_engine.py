"""Penstock's engine, without HTTP, for bench/engine.py: an `Executor` that is given steps as by a router.

`python -m penstock.bench.own_engine FILE_DESCRIPTOR MODEL THREADS`
"""

import sys
import time
from collections.abc import Iterator
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from penstock.bench.trial import Result, Split, Trial
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.step import Ids, Row, Sampling, Step, StepResult, StreamLimits
from tests.shard.step_programs import initial, make_row

FIRST_ID = 16                            # behind the special tokens
STEP_TOKENS = 512                        # of prompts in one step
KV_MEMORY = 1 << 30


class OwnEngine:
    def __init__(self, model: Path, num_threads: int) -> None:
        dispatch.set_threads(num_threads)
        self._executor = Executor(ShardConfig(model=model, kv_memory=KV_MEMORY), Group())
        self._numbers = count()

    def run(self, trial: Trial) -> Result:
        bounds = self._executor.bounds
        rng = np.random.default_rng(next(self._numbers))
        sequences = [
            Written(slot, rng.integers(FIRST_ID, bounds.vocab_size, trial.prompt), trial, bounds.block_size)
            for slot in range(trial.sequences)]
        self._executor.open(StreamLimits(0, trial.sequences, 1 << 20, sequences[0].num_blocks))
        prompts, decodes = list(prompt_steps(sequences)), list(decode_steps(sequences))
        result = self._time(prompts)
        if decodes:
            result = self._time(decodes)
        self._executor.close()
        return result

    def _time(self, steps: list[Step]) -> Result:
        start = time.perf_counter()
        results: list[StepResult] = [self._executor.execute(step) for step in steps]
        seconds = time.perf_counter() - start
        forward = sum(result.forward_ns for result in results) / 1e9 / len(steps)
        sample = sum(result.sample_ns for result in results) / 1e9 / len(steps)
        return Result(sum(row.count for step in steps for row in step.rows), seconds,
                      Split(forward, sample, seconds / len(steps) - forward - sample))


class Written:
    """One sequence of a trial: its rows, and which blocks they fill."""

    def __init__(self, slot: int, prompt: Ids, trial: Trial, block_size: int) -> None:
        self.slot = slot
        self.prompt = prompt
        self.num_blocks = -(-(trial.prompt + trial.new) // block_size)
        self.end = trial.prompt + trial.new - 1          # the last token is never an input
        self._block_size = block_size
        self._sampling = Sampling(
            do_sample=True, seed=slot, temperature=0.8, top_p=0.95) if trial.is_sampled else Sampling()

    def prompt_row(self) -> Row:
        length = len(self.prompt)
        return make_row(self.slot, 0, self.prompt, new_blocks=self._blocks(0, length),
                        initial_state=initial(length, self._sampling))

    def decode_row(self, position: int) -> Row:
        return make_row(self.slot, position, from_last_sample=True, new_blocks=self._blocks(position, position + 1))

    def _blocks(self, start: int, end: int) -> range:
        """Those that positions from `start` to `end` are the first to need."""
        first = self.slot * self.num_blocks
        return range(first + -(-start // self._block_size), first + -(-end // self._block_size))


def prompt_steps(sequences: list[Written]) -> Iterator[Step]:
    per_step = max(1, STEP_TOKENS // len(sequences[0].prompt))
    for first in range(0, len(sequences), per_step):
        yield Step(0, (), tuple(sequence.prompt_row() for sequence in sequences[first:first + per_step]))


def decode_steps(sequences: list[Written]) -> Iterator[Step]:
    for position in range(len(sequences[0].prompt), sequences[0].end):
        yield Step(0, (), tuple(sequence.decode_row(position) for sequence in sequences))


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    engine = OwnEngine(Path(sys.argv[2]), int(sys.argv[3]))
    connection.send(None)
    while request := connection.recv():
        result = engine.run(Trial(**request))
        connection.send((result.tokens, result.seconds, result.split))


if __name__ == "__main__":
    main()
