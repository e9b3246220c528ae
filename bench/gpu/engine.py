"""The engine: decode steps against batches, prompts against lengths, both in one step, sampling, memory."""

import functools
import time
from collections.abc import Iterable
from statistics import median

from penstock.bench.gpu.ceilings import Ceilings
from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.runner import Decoded, Runner, peak_memory
from penstock.bench.gpu.scale import mixed_name, served_name
from penstock.bench.gpu.weights import Floor


def cases(context: Context) -> Cases:
    scale = context.scale
    measured = Measured(context)
    yield "load", measured.load
    yield from measured.cases(scale.batches, scale.prefills)
    for batch, chunk in scale.mixed:
        yield mixed_name(batch, scale.prompt, chunk), functools.partial(measured.mixed, batch, chunk)
    for batch in scale.sampled_batches:
        name = f"sampled decode, {batch} × {scale.prompt}"
        yield name, functools.partial(measured.decode, name, batch, is_sampled=True)
    yield "memory", measured.memory
    for batch in scale.continuous_batches:
        yield f"serve {batch}", functools.partial(measured.serve, batch)


class Measured:
    """One executor, and the records of what is asked of it. `base` is the part that its figures are compared with."""

    def __init__(
        self, context: Context, base: str | None = None, cuda_graphs: tuple[int, ...] | None = None
    ) -> None:
        self._context = context
        self._base = base
        self._cuda_graphs = cuda_graphs
        self._runner: Runner | None = None

    @property
    def runner(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("the model was not loaded")
        return self._runner

    def load(self) -> Record:
        begin = time.monotonic()
        self._runner = Runner(self._context.scale, self._cuda_graphs)
        return self._context.record("load", seconds=time.monotonic() - begin)

    def cases(self, batches: Iterable[int], prefills: Iterable[int]) -> Cases:
        prompt = self._context.scale.prompt
        for batch in batches:
            yield f"decode {batch}", functools.partial(self.decode, f"decode, {batch} × {prompt}", batch)
        for tokens in prefills:
            yield f"prefill {tokens}", functools.partial(self.prefill, f"prefill {tokens}", tokens)

    def decode(self, name: str, batch: int, is_sampled: bool = False) -> Record:
        return self.told(name, self.runner.decode(batch, is_sampled), batch)

    def mixed(self, batch: int, chunk: int) -> Record:
        name = mixed_name(batch, self._context.scale.prompt, chunk)
        return self.told(name, self.runner.mixed(batch, chunk), batch, chunk)

    def told(self, name: str, decoded: Decoded, batch: int, chunk: int = 0) -> Record:
        """Records steps of a batch, and a chunk beside it: of bytes and products the floor is what takes longer."""
        floor, ceilings = Floor(self._context.scale), Ceilings(self._context)
        seconds = (batch + chunk) / decoded.tokens_per_second
        share = ceilings.share_of_copy(floor.decode_bytes(batch, decoded.context), seconds)
        if chunk:
            share = max(share, ceilings.share_of_matmul(floor.step_flops(batch + chunk, batch), seconds))
        return self._told(name, decoded.tokens_per_second, 1e3 * decoded.step_seconds, share, **{
            "forward, ms": 1e3 * decoded.forward_seconds, "sample, ms": 1e3 * decoded.sample_seconds,
            "host, ms": 1e3 * decoded.host_seconds}, first_tokens=decoded.first_tokens)

    def prefill(self, name: str, tokens: int) -> Record:
        repeats = min(self._context.scale.repeats, 3 if tokens <= 4096 else 1)
        self.runner.prefill(tokens)
        seconds = median(self.runner.prefill(tokens) for _ in range(repeats))
        share = Ceilings(self._context).share_of_matmul(Floor(self._context.scale).prefill_flops(tokens), seconds)
        return self._told(name, tokens / seconds, 1e3 * seconds, share)

    def memory(self) -> Record:
        return self._context.record("memory", **{"KV, GB": self.runner.kv_bytes / 1e9, "peak, GB": peak_memory(),
                                                 "weights, GB": Floor(self._context.scale).weight_bytes / 1e9})

    def serve(self, batch: int) -> Record:
        scale = self._context.scale
        seconds = self.runner.serve(batch)
        return self._context.record(served_name(scale, batch), **{
            "tokens/s": batch * scale.new / seconds, "ms": 1e3 * seconds})

    def _told(self, name: str, rate: float, milliseconds: float, share: float, **more: object) -> Record:
        values: dict[str, object] = {"tokens/s": rate, "ms": milliseconds, "% of floor": share, **more}
        if self._base is not None:
            usual = self._context.records.find(self._base, name, "tokens/s")
            values["price %"] = 100 * (1 - rate / usual)
        return self._context.record(name, **values)
