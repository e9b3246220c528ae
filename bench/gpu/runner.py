"""The executor with a random model, driven as a shard's worker drives it: the next step is sent before this one's
tokens are back."""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median

import numpy as np
import torch

from penstock.bench.engine.sequences import Sequences, random_prompts
from penstock.bench.gpu.profile import Rests, profile
from penstock.bench.gpu.scale import Scale
from penstock.bench.gpu.weights import Floor, random_model
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.step import Step, StepResult, StreamLimits
from penstock.shard.startup.load import load

DEPTH = 2


@dataclass(frozen=True)
class Decoded:
    """What was measured of the timed steps, all sequences together."""

    tokens_per_second: float
    step_seconds: float                  # the median
    forward_seconds: float               # in it, as the executor says
    sample_seconds: float
    context: float                       # tokens that a sequence attends to, on average
    first_tokens: list[int]              # of each sequence


class Runner:
    def __init__(self, scale: Scale, has_graphs: bool = True) -> None:
        self._scale = scale
        self._floor = Floor(scale)
        with random_model(scale) as folder:
            self.executor = load(ShardConfig(
                model=folder, kv_memory=self.kv_bytes_needed, max_step_tokens=scale.step_tokens,
                max_step_rows=max(*scale.batches, *scale.continuous_batches),
                cuda_graphs=None if has_graphs else ()), Group())

    @property
    def kv_bytes_needed(self) -> int:
        """Enough for the largest batch or the longest prompt, and a spare block for each sequence."""
        scale, block_size = self._scale, 16
        batch = max(*scale.batches, *scale.continuous_batches)
        tokens = max(batch * (scale.prompt + self.num_new + block_size), max(scale.prefills) + 2 * block_size)
        return (tokens + scale.model["max_position_embeddings"]) * self._floor.token_bytes

    @property
    def num_new(self) -> int:
        return self._scale.warm_up + self._scale.new + self._scale.profiled + 1

    @property
    def kv_bytes(self) -> int:
        return sum(cache.data.nbytes for cache in self.executor.caches)

    def decode(self, batch: int) -> Decoded:
        scale = self._scale
        sequences = self._open(batch, scale.prompt, scale.warm_up + scale.new + 1)
        first = self._first_tokens(self._run(sequences.prompt_steps(scale.step_tokens))[1], batch)
        stamps, results = self._run(sequences.decode_steps())
        self.executor.close()
        forward, sample = (1e-9 * median(getattr(result, name) for result in results[scale.warm_up:])
                           for name in ("forward_ns", "sample_ns"))
        timed = stamps[scale.warm_up - 1:] if scale.warm_up else stamps
        steps = [after - before for before, after in pairwise(timed)]
        return Decoded(batch * len(steps) / (timed[-1] - timed[0]), median(steps), forward, sample,
                       sequences.end - 1 - (len(steps) - 1) / 2, first)

    def serve(self, batch: int) -> float:
        """Returns the seconds from the first prompt's step to the last token of a batch that is given at once."""
        scale = self._scale
        sequences = self._open(batch, scale.prompt, scale.new)
        steps = [*sequences.prompt_steps(scale.step_tokens), *sequences.decode_steps()]
        begin = time.perf_counter()
        stamps, _ = self._run(steps)
        self.executor.close()
        return stamps[-1] - begin

    def prefill(self, tokens: int) -> float:
        """Returns the seconds until a prompt's first token."""
        steps = self._open(1, tokens, 1).prompt_steps(self._scale.step_tokens)
        begin = time.perf_counter()
        stamps, _ = self._run(steps)
        self.executor.close()
        return stamps[-1] - begin

    def rests(self, batch: int) -> Rests:
        """Returns how the device rests in decode steps."""
        scale = self._scale
        sequences = self._open(batch, scale.prompt, scale.warm_up + scale.profiled + 1)
        self._run(sequences.prompt_steps(scale.step_tokens))
        steps = list(sequences.decode_steps())
        self._run(steps[:scale.warm_up])
        found = profile(partial(self._run, steps[scale.warm_up:]), scale.profiled)
        self.executor.close()
        return found

    def _open(self, batch: int, length: int, new: int) -> Sequences:
        bounds = self.executor.bounds
        sequences = Sequences(random_prompts(batch, length, self._scale.vocab_size), new, bounds.block_size,
                              np.random.default_rng(0).permutation(bounds.num_blocks))
        blocks = -(-bounds.context_length // bounds.block_size)
        self.executor.open(StreamLimits(0, max_slots=max(batch, *self._scale.batches), max_step_tokens=1 << 20,
                                max_blocks_per_slot=blocks))
        return sequences

    def _run(self, steps: Iterable[Step]) -> tuple[list[float], list[StepResult]]:
        """Runs steps; returns when the tokens of each were there, and the results."""
        stamps: list[float] = []
        results: list[StepResult] = []
        flying: deque = deque()

        def land() -> None:
            results.append(self.executor.finish(flying.popleft()))
            stamps.append(time.perf_counter())

        for step in steps:
            flying.append(self.executor.launch(step))
            if len(flying) == DEPTH:
                land()
        while flying:
            land()
        return stamps, results

    @staticmethod
    def _first_tokens(results: list[StepResult], batch: int) -> list[int]:
        tokens = {row.slot: row.token_ids[0] for result in results for row in result.rows}
        return [int(tokens[slot]) for slot in range(batch)]


def peak_memory() -> float:
    """Returns the most GB that this process had on the device at once."""
    return torch.cuda.max_memory_allocated() / 1e9 if dispatch.device().type == "cuda" else float("nan")
