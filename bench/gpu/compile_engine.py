"""The kernels of the engine's steps, compiled by many processes: each runs a model of one layer in one size, and leaves
in Triton's cache what the whole model's layers all use."""

import functools
from dataclasses import replace

from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.runner import Runner
from penstock.bench.gpu.scale import Scale


def cases(context: Context) -> Cases:
    """Yields a decode step of each batch, a prompt of each length, and what steps there are of both."""
    for batch in context.scale.batches:
        yield f"decode {batch}", functools.partial(compile_decode, context.scale, batch)
    for tokens in context.scale.prefills:
        yield f"prefill {tokens}", functools.partial(compile_prefill, context.scale, tokens)
    for batch, chunk in context.scale.mixed:
        yield f"mixed {batch}, {chunk}", functools.partial(compile_mixed, context.scale, batch, chunk)


def compile_decode(scale: Scale, batch: int) -> Record | None:
    """Runs a few decode steps, where it is wanted also such with cutoffs."""
    runner = Runner(_with_room(scale, batch, scale.prompt), ())
    runner.decode(batch)
    if batch in scale.sampled_batches:
        runner.decode(batch, is_sampled=True)
    return None


def compile_prefill(scale: Scale, tokens: int) -> Record | None:
    """Runs one prompt."""
    Runner(_with_room(scale, 1, tokens), ()).prefill(tokens)
    return None


def compile_mixed(scale: Scale, batch: int, chunk: int) -> Record | None:
    """Runs a few decode steps with a chunk of a prompt in each."""
    thin = thin_scale(scale)
    num_prompts = -(-(thin.warm_up + thin.new) * chunk // scale.prompt)
    Runner(_with_room(scale, batch + num_prompts, scale.prompt), ()).mixed(batch, chunk)
    return None


def _with_room(scale: Scale, batch: int, tokens: int) -> Scale:
    """Returns the thin scale with room for so many sequences, or for one prompt of so many tokens."""
    return replace(thin_scale(scale), batches=(batch,), continuous_batches=(batch,), prefills=(tokens,))


def thin_scale(scale: Scale) -> Scale:
    """Returns the scale with one layer and few steps."""
    return replace(scale, model={**scale.model, "num_hidden_layers": 1}, warm_up=1, new=2, profiled=0)
