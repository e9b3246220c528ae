"""The engine over KV caches of 8 bits, beside itself over those of the model's dtype."""

import functools
import gc
from dataclasses import replace
from typing import Literal, get_args

import torch

from penstock.bench.gpu.ceilings import Ceilings
from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.runner import BLOCK_SIZE, Runner
from penstock.bench.gpu.weights import Floor

CacheDtype = Literal["fp8_e4m3fn", "int8"]


def cases(context: Context) -> Cases:
    for dtype in get_args(CacheDtype):
        yield dtype, functools.partial(_measure, context, dtype)


def _measure(context: Context, dtype: CacheDtype) -> list[Record]:
    """Loads a model with such caches, decodes, and lets its memory go, for the next one needs it."""
    batches = context.scale.cached_batches
    scale = replace(context.scale, batches=batches, continuous_batches=batches, prefills=(context.scale.prompt,))
    runner = Runner(scale, batches, dtype)
    records = [_decode(context, runner, dtype, batch) for batch in batches]
    del runner
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return records


def _decode(context: Context, runner: Runner, dtype: CacheDtype, batch: int) -> Record:
    name = f"decode, {batch} × {context.scale.prompt}"
    decoded = runner.decode(batch)
    token_bytes = runner.executor.memory.kv_shape.block_bytes / BLOCK_SIZE
    num_bytes = Floor(context.scale).weight_bytes + batch * decoded.context * token_bytes
    share = Ceilings(context).share_of_copy(num_bytes, batch / decoded.tokens_per_second)
    usual = context.records.find("engine", name, "tokens/s")
    return context.record(f"{name}, {dtype}", **{
        "tokens/s": decoded.tokens_per_second, "ms": 1e3 * decoded.step_seconds, "% of floor": share,
        "× the engine above": decoded.tokens_per_second / usual})
