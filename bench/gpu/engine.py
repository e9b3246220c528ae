"""The engine: decode steps against batches, prompts against lengths, both in one step, sampling, memory; the same over
caches of 8 bits, without CUDA graphs and with --deterministic; and steps broken down by kernel."""

import functools
import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import median
from typing import Literal, get_args

import torch

from penstock.bench.gpu.ceilings import Ceilings
from penstock.bench.gpu.ops import linear_cases
from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.profile import Profile
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.runner import BLOCK_SIZE, Decoded, Runner, peak_memory
from penstock.bench.gpu.scale import mixed_name, served_name
from penstock.bench.gpu.weights import Floor

CacheDtype = Literal["fp8_e4m3fn", "int8"]
LISTED = 12
"""Kernels of a step that have a row of their own."""


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


def deterministic_cases(context: Context) -> Cases:
    """Yields the engine that keeps the bit contract, and its linears: what that costs."""
    measured = Measured(context, base="engine")
    yield "load", measured.load
    yield from measured.cases(context.scale.deterministic_batches, (context.scale.deterministic_prefill,))
    yield from linear_cases(context)


def graphless_cases(context: Context) -> Cases:
    """Yields the engine without CUDA graphs: what they are worth."""
    measured = Measured(context, base="engine", cuda_graphs=())
    yield "load", measured.load
    yield from measured.cases(context.scale.graphless_batches, ())


def small_cache_cases(context: Context) -> Cases:
    """Yields the engine over caches of 8 bits, beside itself over those of the model's dtype."""
    for dtype in get_args(CacheDtype):
        yield dtype, functools.partial(_with_small_cache, context, dtype)


def profile_cases(context: Context) -> Cases:
    """Yields steps of the engine broken down: how long the device rests, and its work meanwhile, kernel by kernel."""
    scale, measured = context.scale, Measured(context)
    yield "load", measured.load

    def case(name: str, profile: Callable[[Runner], Profile]) -> tuple[str, Callable[[], list[Record]]]:
        return name, lambda: _broken_down(context, name, profile(measured.runner))

    for batch in scale.profiled_batches:
        yield case(f"decode, {batch} × {scale.prompt}", functools.partial(Runner.profile_decode, batch=batch))
    for batch, chunk in scale.mixed[:1]:
        yield case(mixed_name(batch, scale.prompt, chunk),
                   functools.partial(Runner.profile_mixed, batch=batch, chunk=chunk))
    tokens = scale.prefills[0]
    yield case(f"prefill {tokens}", functools.partial(Runner.profile_prefill, tokens=tokens))


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


def _with_small_cache(context: Context, dtype: CacheDtype) -> list[Record]:
    """Loads a model with such caches, decodes, and lets its memory go, for the next one needs it."""
    batches = context.scale.cached_batches
    scale = replace(context.scale, batches=batches, continuous_batches=batches, prefills=(context.scale.prompt,))
    runner = Runner(scale, batches, dtype)
    records = [_decode_small_cache(context, runner, dtype, batch) for batch in batches]
    del runner
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return records


def _decode_small_cache(context: Context, runner: Runner, dtype: CacheDtype, batch: int) -> Record:
    name = f"decode, {batch} × {context.scale.prompt}"
    decoded = runner.decode(batch)
    token_bytes = runner.executor.memory.kv_shape.block_bytes / BLOCK_SIZE
    num_bytes = Floor(context.scale).weight_bytes + batch * decoded.context * token_bytes
    share = Ceilings(context).share_of_copy(num_bytes, batch / decoded.tokens_per_second)
    usual = context.records.find("engine", name, "tokens/s")
    return context.record(f"{name}, {dtype}", **{
        "tokens/s": decoded.tokens_per_second, "ms": 1e3 * decoded.step_seconds, "% of floor": share,
        "× the engine above": decoded.tokens_per_second / usual})


def _broken_down(context: Context, name: str, found: Profile) -> list[Record]:
    """Returns a record of a step, and one of each of its longest kernels, which have all but what is told as rest."""
    busy, launches = (sum(getattr(kernel, column) for kernel in found.kernels) for column in ("seconds", "launches"))
    told = [(kernel.name, kernel.seconds, kernel.launches) for kernel in found.kernels[:LISTED]]
    if others := found.kernels[LISTED:]:
        told.append((f"{len(others)} others", sum(kernel.seconds for kernel in others),
                     sum(kernel.launches for kernel in others)))
    return [context.record(name, **{
        "us": 1e6 * found.rests.busy_seconds, "launches": launches, "idle %": found.rests.share,
        "between steps %": found.rests.share_between}), *(
            context.record(f"{name}: {kernel}", **{
                "us": 1e6 * seconds, "launches": count, "% of the kernels": 100 * seconds / busy})
            for kernel, seconds, count in told)]
