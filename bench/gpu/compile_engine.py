"""The kernels of the engine's steps, compiled by many processes: each runs a model of one layer in one size, and leaves
in Triton's cache what the whole model's layers all use."""

import functools
from dataclasses import replace

from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.runner import Runner
from penstock.bench.gpu.scale import Scale
from penstock.kernels import dispatch


def cases(context: Context) -> Cases:
    """Yields a decode step of each batch, and a prompt of each length: the longest compiles first."""
    if dispatch.device().type != "cuda":
        yield "compiling", lambda: context.record("compiling", note="there is nothing to compile on this device")
        return
    for batch in context.scale.batches:
        yield f"decode {batch}", functools.partial(compile_decode, context.scale, batch)
    for tokens in context.scale.prefills:
        yield f"prefill {tokens}", functools.partial(compile_prefill, context.scale, tokens)


def compile_decode(scale: Scale, batch: int) -> Record | None:
    """Runs a few decode steps."""
    thin = replace(thin_scale(scale), batches=(batch,), continuous_batches=(batch,), prefills=(scale.prompt,))
    Runner(thin, has_graphs=False).decode(batch)
    return None


def compile_prefill(scale: Scale, tokens: int) -> Record | None:
    """Runs one prompt."""
    thin = replace(thin_scale(scale), batches=(1,), continuous_batches=(1,), prefills=(tokens,))
    Runner(thin, has_graphs=False).prefill(tokens)
    return None


def thin_scale(scale: Scale) -> Scale:
    """Returns the scale with one layer and few steps."""
    return replace(scale, model={**scale.model, "num_hidden_layers": 1}, warm_up=1, new=2, profiled=0)
