"""Penstock's engine, without HTTP, for bench/engine/command.py: an `Executor` that is given steps as by a router.

`python -m penstock.bench.engine.own FILE_DESCRIPTOR CONFIG`, the shard's settings as one JSON object; each rank of a
group is such a process.
"""

import sys
import time
from dataclasses import astuple, replace
from itertools import count
from multiprocessing.connection import Connection

from penstock.bench.engine.sequences import GREEDY, Sequences, random_prompts
from penstock.bench.programs.trial import Result, Split, Trial
from penstock.contract.plan import Plan
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import connect
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.system.heap import freeze_heap

FIRST_ID = 16                            # behind the special tokens
STEP_TOKENS = 512                        # of prompts in one step, and of a longer one all of it
KV_MEMORY = 1 << 30


def trial_sequences(trial: Trial, vocab_size: int, block_size: int, seed: int = 0) -> Sequences:
    """Returns the sequences of a trial, whose blocks lie one after the other."""
    prompts = random_prompts(trial.sequences, trial.prompt, vocab_size, FIRST_ID, seed)
    num_blocks = trial.sequences * -(-(trial.prompt + trial.new) // block_size)
    samplings = [Sampling(do_sample=True, seed=slot, temperature=0.8, top_p=0.95) if trial.is_sampled else GREEDY
                 for slot in range(trial.sequences)]
    return Sequences(prompts, trial.new, block_size, range(num_blocks), samplings)


def budget(trial: Trial) -> int:
    """Returns how many tokens a step of a trial takes of its prompts, which are whole."""
    return max(1, STEP_TOKENS // trial.prompt) * trial.prompt


class OwnEngine:
    def __init__(self, config: ShardConfig) -> None:
        """Meets the other ranks of the group, if there are any. The threads are placed as a shard's are."""
        dispatch.set_threads(config.num_threads, config.cpus)
        group = connect(config.rendezvous, config.rank, config.world_size)
        self._executor = Executor(replace(config, kv_memory=KV_MEMORY), group)
        self._numbers = count()

    def run(self, trial: Trial) -> Result:
        bounds = self._executor.memory.bounds
        sequences = trial_sequences(trial, bounds.vocab_size, bounds.block_size, next(self._numbers))
        self._executor.open(StreamLimits(trial.sequences, 1 << 20, sequences.blocks_each, 0))
        prompts, decodes = list(sequences.prompt_steps(budget(trial))), list(sequences.decode_steps())
        result = self._time(prompts)
        if decodes:
            result = self._time(decodes)
        self._executor.close()
        return result

    def _time(self, steps: list[Plan]) -> Result:
        start = time.perf_counter()
        results: list[StepResult] = [self._executor.execute(step) for step in steps]
        seconds = time.perf_counter() - start
        forward = sum(result.forward_ns for result in results) / 1e9 / len(steps)
        sample = sum(result.sample_ns for result in results) / 1e9 / len(steps)
        return Result(sum(row.num_inputs for step in steps for row in step.rows), seconds,
                      Split(forward, sample, seconds / len(steps) - forward - sample))


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    engine = OwnEngine(ShardConfig.from_json(sys.argv[2]))
    freeze_heap()                        # as shards do before they serve
    connection.send(None)
    while request := connection.recv():
        result = engine.run(Trial(**request))
        connection.send((result.tokens, result.seconds, result.split and astuple(result.split)))


if __name__ == "__main__":
    main()
