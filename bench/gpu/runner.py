"""The executor with a random model, driven as a shard's worker drives it: the next step is sent before this one's
tokens are back."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Literal

import numpy as np
import torch

from penstock.bench.engine.sequences import Sequences, random_prompts
from penstock.bench.gpu.profile import Profile, profile
from penstock.bench.gpu.scale import Scale
from penstock.bench.gpu.weights import Floor, random_model
from penstock.contract.plan import Plan
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Launched
from penstock.shard.startup.load import load

DEPTH = 2
BLOCK_SIZE = 16
CUTOFFS = [Sampling(do_sample=True, seed=seed, temperature=0.8, top_p=0.95) for seed in range(1024)]


@dataclass(frozen=True)
class Decoded:
    """The measurement of the timed steps, all sequences together."""

    tokens_per_second: float
    step_seconds: float                  # the median
    forward_seconds: float               # in it, as the executor says
    sample_seconds: float
    host_seconds: float                  # until all of the step is on its way
    context: float                       # tokens that a sequence attends to, on average
    first_tokens: list[int]              # of each sequence


@dataclass
class Ran:
    """Steps that have run: when the tokens of each were there, how long each took to launch, and the results."""

    stamps: list[float] = field(default_factory=list)
    launches: list[float] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)


class Runner:
    """Loads the model. Without `cuda_graphs` those of the usual sizes are captured, and of () none."""

    def __init__(
        self, scale: Scale, cuda_graphs: tuple[int, ...] | None = None,
        kv_cache_dtype: Literal["fp8_e4m3fn", "fp8_e5m2", "int8"] | None = None,
    ) -> None:
        self._scale = scale
        self._floor = Floor(scale)
        with random_model(scale) as folder:
            self.executor = load(ShardConfig(
                model=folder, kv_memory=self.kv_bytes_needed, max_step_tokens=scale.step_tokens,
                max_step_rows=self._most_sequences, cuda_graphs=cuda_graphs, kv_cache_dtype=kv_cache_dtype), Group())

    @property
    def _most_sequences(self) -> int:
        scale = self._scale
        return max(*scale.batches, *scale.continuous_batches)

    @property
    def kv_bytes_needed(self) -> int:
        """Enough for the largest batch or the longest prompt, and a spare block for each sequence."""
        scale = self._scale
        tokens = max(self._most_sequences * (scale.prompt + self.num_new + BLOCK_SIZE),
                     max(scale.prefills) + 2 * BLOCK_SIZE)
        return (tokens + scale.model["max_position_embeddings"]) * self._floor.token_bytes

    @property
    def num_new(self) -> int:
        return self._scale.warm_up + self._scale.new + self._scale.profiled + 1

    @property
    def kv_bytes(self) -> int:
        return sum(cache.data.nbytes for cache in self.executor.memory.caches)

    def decode(self, batch: int, is_sampled: bool = False) -> Decoded:
        """Times decode steps, greedy ones or such with cutoffs."""
        scale = self._scale
        [sequences] = self._open((batch, scale.warm_up + scale.new + 1), is_sampled=is_sampled)
        first = self._first_tokens(self.run(sequences.prompt_steps(scale.step_tokens)).results, batch)
        return self._decoded(sequences.decode_steps(), batch, sequences, first)

    def mixed(self, batch: int, chunk: int) -> Decoded:
        """Times steps in which sequences decode beside a chunk of a prompt; tokens are those of both."""
        sequences, steps = self._mixed(batch, chunk, self._scale.new)
        return self._decoded(steps, batch + chunk, sequences, [])

    def _mixed(self, batch: int, chunk: int, number: int) -> tuple[Sequences, Iterator[Plan]]:
        """Runs the prompts of a batch; returns it, and `number` steps behind those that warm up."""
        scale = self._scale
        number += scale.warm_up
        sequences, others = self._open((batch, number + 1), (-(-number * chunk // scale.prompt), 1))
        self.run(sequences.prompt_steps(scale.step_tokens))
        pairs = zip(sequences.decode_steps(), others.prompt_steps(chunk), strict=False)
        return sequences, (Plan(decode.step_id, decode.rows + prompt.rows) for decode, prompt in pairs)

    def _decoded(self, steps: Iterable[Plan], tokens: int, sequences: Sequences, first: list[int]) -> Decoded:
        warm_up = self._scale.warm_up
        ran = self.run(steps)
        self.executor.close()
        forward, sample = (1e-9 * median(getattr(result, name) for result in ran.results[warm_up:])
                           for name in ("forward_ns", "sample_ns"))
        timed = ran.stamps[warm_up - 1:] if warm_up else ran.stamps
        seconds = [after - before for before, after in pairwise(timed)]
        return Decoded(tokens * len(seconds) / (timed[-1] - timed[0]), median(seconds), forward, sample,
                       median(ran.launches[warm_up:]), sequences.end - 1 - (len(seconds) - 1) / 2, first)

    def serve(self, batch: int) -> float:
        """Returns the seconds from the first prompt's step to the last token of a batch that is given at once."""
        scale = self._scale
        [sequences] = self._open((batch, scale.new))
        steps = [*sequences.prompt_steps(scale.step_tokens), *sequences.decode_steps()]
        begin = time.perf_counter()
        stamps = self.run(steps).stamps
        self.executor.close()
        return stamps[-1] - begin

    def prefill(self, tokens: int) -> float:
        """Returns the seconds until a prompt's first token."""
        steps = self._prompt(tokens)
        begin = time.perf_counter()
        stamps = self.run(steps).stamps
        self.executor.close()
        return stamps[-1] - begin

    def profile_decode(self, batch: int) -> Profile:
        scale = self._scale
        [sequences] = self._open((batch, scale.warm_up + scale.profiled + 1))
        self.run(sequences.prompt_steps(scale.step_tokens))
        return self._profile(sequences.decode_steps())

    def profile_mixed(self, batch: int, chunk: int) -> Profile:
        return self._profile(self._mixed(batch, chunk, self._scale.profiled)[1])

    def profile_prefill(self, tokens: int) -> Profile:
        """Profiles all steps of a prompt, taken for one."""
        self.prefill(tokens)
        found = profile(partial(self.run, self._prompt(tokens)), 1)
        self.executor.close()
        return found

    def _profile(self, steps: Iterable[Plan]) -> Profile:
        """Profiles steps but for those that warm up."""
        listed, warm_up = list(steps), self._scale.warm_up
        self.run(listed[:warm_up])
        found = profile(partial(self.run, listed[warm_up:]), len(listed) - warm_up)
        self.executor.close()
        return found

    def _prompt(self, tokens: int) -> list[Plan]:
        [sequences] = self._open((1, 1), length=tokens)
        return list(sequences.prompt_steps(self._scale.step_tokens))

    def _open(self, *batches: tuple[int, int], length: int | None = None, is_sampled: bool = False) -> list[Sequences]:
        """Opens the executor for batches, each of so many sequences with so many new tokens."""
        bounds = self.executor.memory.bounds
        length = length or self._scale.prompt
        blocks = np.random.default_rng(0).permutation(bounds.num_blocks)
        opened: list[Sequences] = []
        num_slots = num_taken = 0
        for number, new in batches:
            prompts = random_prompts(number, length, self._scale.vocab_size, seed=len(opened))
            opened.append(Sequences(prompts, new, bounds.block_size, blocks[num_taken:],
                                    CUTOFFS[:number] if is_sampled else (), first_slot=num_slots))
            num_slots, num_taken = num_slots + number, num_taken + number * opened[-1].blocks_each
        self.executor.open(StreamLimits(
            max_slots=max(num_slots, *self._scale.batches), max_step_tokens=1 << 20,
            max_blocks_per_slot=-(-bounds.context_length // bounds.block_size)))
        return opened

    def run(self, steps: Iterable[Plan]) -> Ran:
        """Runs steps, of which DEPTH are on their way at a time."""
        ran, flying = Ran(), deque[Launched]()

        def land() -> None:
            ran.results.append(self.executor.finish(flying.popleft()))
            ran.stamps.append(time.perf_counter())

        for step in steps:
            begin = time.perf_counter()
            flying.append(self.executor.launch(step))
            ran.launches.append(time.perf_counter() - begin)
            if len(flying) == DEPTH:
                land()
        while flying:
            land()
        return ran

    @staticmethod
    def _first_tokens(results: list[StepResult], batch: int) -> list[int]:
        tokens = {row.slot: row.token_ids[0] for result in results for row in result.rows}
        return [int(tokens[slot]) for slot in range(batch)]


def peak_memory() -> float:
    """Returns the most GB that this process had on the device at once."""
    return torch.cuda.max_memory_allocated() / 1e9 if dispatch.device().type == "cuda" else float("nan")
