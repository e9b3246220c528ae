"""The promise of --deterministic for the engine: a request's tokens and logprobs have the same bits however the steps
are made up that compute them."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from penstock.bench.engine.sequences import random_prompts
from penstock.bench.gpu.orders import Orders, Picks, Request
from penstock.bench.gpu.part import LOAD, Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.runner import DEPTH, Runner
from penstock.bench.gpu.scale import Scale
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels.kv_cache import KvCache

SAMPLINGS = (
    Sampling(), Sampling(do_sample=True, seed=1), Sampling(do_sample=True, seed=2, temperature=0.8, top_p=0.95),
    Sampling(repetition_penalty=1.3), Sampling(do_sample=True, seed=3, top_k=20, raw_logprobs=True))
GUESSES = 3
Answer = list[tuple[int, float]]
"""Tokens with their logprobs."""
Schedule = Callable[[Orders], Iterator[Picks]]


def cases(context: Context) -> Cases:
    engine = Engine(context.scale)
    yield LOAD, engine.load
    promises = {
        "batched = alone": engine.batched, "chunked = whole": engine.chunked, "cached = fresh": engine.cached,
        "replayed = undisturbed": engine.replayed, "planned ahead = one by one": engine.one_by_one,
        "speculated = plain": engine.speculated, "without graphs = with them": engine.graphless}
    for promise, run in promises.items():
        yield promise, functools.partial(_compare, context, promise, engine, run)


def _compare(context: Context, name: str, engine: "Engine", run: "Callable[[], list[list[Answer]]]") -> Record:
    """Records how many of the answers that `run` gives, one list or several, are those of each request alone."""
    pairs = [(own, alone) for answers in run() for own, alone in zip(answers, engine.alone, strict=True)]
    equal = sum(bool(own) and own == alone[len(alone) - len(own):] for own, alone in pairs)
    return context.record(name, is_right=equal == len(pairs), equal=equal, of=len(pairs))


class Engine:
    """A model of two layers. Each method returns the answers of all requests, once or several times."""

    def __init__(self, scale: Scale) -> None:
        self._scale = replace(
            scale, model={**scale.model, "num_hidden_layers": min(2, scale.model["num_hidden_layers"])},
            batches=(len(scale.equal_prompts),), continuous_batches=(1,), prefills=(sum(scale.equal_prompts) + 64,))
        self._runner: Runner | None = None
        self.requests = [
            Request(random_prompts(1, length, scale.vocab_size, seed=length)[0].tolist(), scale.equal_new,
                    SAMPLINGS[index % len(SAMPLINGS)]) for index, length in enumerate(scale.equal_prompts)]

    def load(self) -> None:
        self._runner = Runner(self._scale)

    @property
    def runner(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("the model was not loaded")
        return self._runner

    @functools.cached_property
    def alone(self) -> list[Answer]:
        """Returns the answers to one request after the other, each prompt in one step."""
        return self._run(one_after_the_other())

    def batched(self) -> list[list[Answer]]:
        """Lets each prompt come beside the decode rows of those before it, in either order."""
        return [self._run(beside), self._run(functools.partial(beside, is_reversed=True))]

    def chunked(self) -> list[list[Answer]]:
        return [self._run(one_after_the_other(chunk)) for chunk in self._scale.equal_chunks]

    def cached(self) -> list[list[Answer]]:
        """Computes all prompts, and then again with the whole blocks found where the first time left them."""
        self._run(one_after_the_other())
        return [self._run(beside, num_cached=max(self._scale.equal_prompts))]

    def replayed(self) -> list[list[Answer]]:
        """Goes on in the middle of the answers when the cache and all slots are lost."""
        return [self._run(beside, outputs=[[token for token, _ in answer[:begun]] for answer in self.alone])
                for begun in (1, self._scale.equal_new - 1)]

    def one_by_one(self) -> list[list[Answer]]:
        return [self._run(beside, depth=1)]

    def graphless(self) -> list[list[Answer]]:
        executor = self.runner.executor
        graphs, executor.memory.graphs = executor.memory.graphs, None
        try:
            return [self._run(beside)]
        finally:
            executor.memory.graphs = graphs

    def speculated(self) -> list[list[Answer]]:
        """Verifies guesses of which some are wrong."""
        return [[self._speculated(index, answer) for index, answer in enumerate(self.alone)]]

    def _run(
        self, schedule: Schedule, outputs: Sequence[Sequence[int]] = (), num_cached: int = 0, depth: int = DEPTH
    ) -> list[Answer]:
        orders = self._open(outputs, num_cached)
        ran = self.runner.run(orders.steps(schedule(orders)), depth)
        self.runner.executor.close()
        return self._answers(ran.results)

    def _speculated(self, index: int, alone: Answer) -> Answer:
        """Runs one request; of its guesses every other step has a wrong one."""
        orders, executor = self._open(), self.runner.executor
        right = [token for token, _ in alone]
        results = [executor.execute(next(orders.steps([[(index, orders.left(index))]])))]
        while not orders.is_done(index):
            told = sum(len(row.token_ids) for result in results for row in result.rows)
            drafts = right[told:min(told + GUESSES, len(right) - 1)]
            if len(results) % 2 and drafts:
                drafts[-1] = (drafts[-1] + 1) % self._scale.vocab_size
            step = replace(next(orders.steps([[]])), rows=(orders.verify(index, right[told - 1], drafts),))
            results.append(executor.execute(step))
            orders.accept(index, len(drafts), len(results[-1].rows[0].token_ids) - 1)
        executor.close()
        return self._answers(results)[index]

    def _open(self, outputs: Sequence[Sequence[int]] = (), num_cached: int = 0) -> Orders:
        """Opens the executor. What it computed before is lost, unless some of it is to be found."""
        executor = self.runner.executor
        if not num_cached:
            for cache in executor.memory.caches:
                if isinstance(cache, KvCache):
                    cache.data.fill_(0xFF)           # NaN in every format
        bounds = executor.memory.bounds
        executor.open(StreamLimits(
            max_slots=len(self.requests), max_step_tokens=1 << 20,
            max_blocks_per_slot=-(-bounds.context_length // bounds.block_size)))
        return Orders(self.requests, bounds, outputs, num_cached)

    def _answers(self, results: Sequence[StepResult]) -> list[Answer]:
        answers: list[Answer] = [[] for _ in self.requests]
        for row in (row for result in results for row in result.rows):
            answers[row.slot] += zip(row.token_ids, row.logprobs, strict=True)
        return answers


def one_after_the_other(chunk: int | None = None) -> Schedule:
    """Returns a schedule of one request at a time, its prompt whole or in chunks."""
    def schedule(orders: Orders) -> Iterator[Picks]:
        for index in range(orders.number):
            while not orders.is_done(index):
                left = max(1, orders.left(index))
                yield [(index, min(left, chunk or left))]
    return schedule


def beside(orders: Orders, is_reversed: bool = False) -> Iterator[Picks]:
    """Yields steps of which each begins one more request beside all that have begun."""
    waiting, running = list(range(orders.number)), list[int]()
    if is_reversed:
        waiting.reverse()
    while waiting or running:
        running += waiting[:1]
        del waiting[:1]
        yield [(index, max(1, orders.left(index))) for index in running]
        running = [index for index in running if not orders.is_done(index)]
