"""Kernels compiled by many processes, so that they are found compiled where they are timed; and the fastest
configurations of them, found and saved for this GPU as `penstock tune` does it."""

import functools
from collections.abc import Iterator
from dataclasses import replace

from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import TUNED, Record
from penstock.bench.gpu.runner import Runner
from penstock.bench.gpu.scale import Scale
from penstock.bench.gpu.weights import random_model
from penstock.kernels import tuning
from penstock.shard.models.reading import read_model_config
from penstock.shard.startup.tune import Job, jobs_of

MOST_TRIED = 6
"""Candidates of each job: the best guesses."""
FIRST = ("gate_up_proj", "down_proj", "lm_head")
"""The linears that have nine tenths of a step's bytes."""


def engine_cases(context: Context) -> Cases:
    """Yields a decode step of each batch, a prompt of each length, and what steps there are of both. Each runs a model
    of one layer, and leaves in Triton's cache what all layers use."""
    scale = context.scale
    for batch in scale.batches:
        yield f"decode {batch}", functools.partial(compile_decode, scale, batch)
    for tokens in scale.prefills:
        yield f"prefill {tokens}", functools.partial(compile_prefill, scale, tokens)
    for batch, chunk in scale.mixed:
        yield f"mixed {batch}, {chunk}", functools.partial(compile_mixed, scale, batch, chunk)


def compile_decode(scale: Scale, batch: int) -> None:
    """Runs a few decode steps, where it is wanted also such with cutoffs."""
    runner = _thin_runner(scale, batch, scale.prompt)
    runner.decode(batch)
    if batch in scale.sampled_batches:
        runner.decode(batch, is_sampled=True)


def compile_prefill(scale: Scale, tokens: int) -> None:
    _thin_runner(scale, 1, tokens).prefill(tokens)


def compile_mixed(scale: Scale, batch: int, chunk: int) -> None:
    """Runs a few decode steps with a chunk of a prompt in each."""
    thin = thin_scale(scale)
    num_prompts = -(-(thin.warm_up + thin.new) * chunk // scale.prompt)
    _thin_runner(scale, batch + num_prompts, scale.prompt).mixed(batch, chunk)


def _thin_runner(scale: Scale, batch: int, tokens: int) -> Runner:
    """Returns a model of one layer with room for so many sequences, or for one prompt of so many tokens."""
    return Runner(replace(thin_scale(scale), batches=(batch,), continuous_batches=(batch,), prefills=(tokens,)), ())


def thin_scale(scale: Scale) -> Scale:
    """Returns the scale with one layer and few steps."""
    return replace(scale, model={**scale.model, "num_hidden_layers": 1}, warm_up=1, new=2, profiled=0)


def candidate_cases(context: Context) -> Cases:
    """Yields the kernels' jobs, of which each compiles the configurations that the next part times."""
    for name, job in _jobs(context):
        yield name, functools.partial(_tune, context, name, job, is_timed=False)


def tuning_cases(context: Context) -> Cases:
    """Yields the kernels' jobs: those of few rows, of many and of a step's budget, the largest linears first."""
    for name, job in _jobs(context):
        yield name, functools.partial(_tune, context, name, job, is_timed=True)
    yield "saved", functools.partial(keep, context)


def _jobs(context: Context) -> Iterator[tuple[str, Job]]:
    with random_model(context.scale) as folder:
        config = read_model_config(folder)
    wanted = {1, 16, 128, context.scale.step_tokens}
    jobs = [job for job in jobs_of(config, 1, context.scale.dtype, context.scale.step_tokens)
            if job.num_rows in wanted or job.name.startswith("attention")]
    for job in sorted(jobs, key=lambda job: (job.name not in FIRST, job.num_rows)):
        yield f"{job.name}, {job.num_rows} rows", job


def _tune(context: Context, name: str, job: Job, is_timed: bool) -> Record | None:
    with tuning.trying(MOST_TRIED, is_timed):
        outcome = job.run()
    return context.record(name, **{
        "guess, us": 1e6 * outcome.default_seconds, "best, us": 1e6 * outcome.seconds,
        "configuration": " ".join(f"{key}={value}" for key, value in outcome.config.items())}) if is_timed else None


def keep(context: Context) -> Record:
    """Puts the configurations that won beside the records, for the report."""
    context.records.path.with_name(TUNED).write_bytes(tuning.path().read_bytes())
    return context.record("saved", note=str(tuning.path()))
