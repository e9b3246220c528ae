"""The fastest configurations of the kernels, found and saved for this GPU as `penstock tune` does it; and before that,
in another part, all of them compiled, by many processes."""

import functools
from collections.abc import Iterator

from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import TUNED, Record
from penstock.bench.gpu.weights import random_model
from penstock.kernels import tuning
from penstock.shard.models.reading import read_model_config
from penstock.shard.startup.tune import Job, jobs_of

MOST_TRIED = 6
"""Candidates of each job: the best guesses."""
FIRST = ("gate_up_proj", "down_proj", "lm_head")
"""The linears that have nine tenths of a step's bytes."""


def cases(context: Context, is_timed: bool = True) -> Cases:
    """Yields the kernels' jobs: those of few rows, of many and of a step's budget, the largest linears first."""
    for name, job in _jobs(context):
        yield name, functools.partial(_tune, context, name, job, is_timed)
    if is_timed:
        yield "saved", functools.partial(keep, context)


def _jobs(context: Context) -> Iterator[tuple[str, Job]]:
    with random_model(context.scale) as folder:
        config = read_model_config(folder)
    wanted = {1, 16, 128, context.scale.step_tokens}
    jobs = [job for job in jobs_of(config, 1, context.scale.dtype, context.scale.step_tokens)
            if job.num_rows in wanted or job.name.startswith("attention")]
    for job in sorted(jobs, key=lambda job: (job.name not in FIRST, job.num_rows)):
        yield f"{job.name}, {job.num_rows} rows", job


def keep(context: Context) -> Record:
    """Puts the configurations that won beside the records, for the report."""
    context.records.path.with_name(TUNED).write_bytes(tuning.path().read_bytes())
    return context.record("saved", note=str(tuning.path()))


def _tune(context: Context, name: str, job: Job, is_timed: bool) -> Record | None:
    with tuning.trying(MOST_TRIED, is_timed):
        outcome = job.run()
    return context.record(name, **{
        "guess, us": 1e6 * outcome.default_seconds, "best, us": 1e6 * outcome.seconds,
        "configuration": " ".join(f"{key}={value}" for key, value in outcome.config.items())}) if is_timed else None
