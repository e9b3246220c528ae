"""The fastest configurations of the kernels, found and saved for this GPU as `penstock tune` does it."""

import functools

from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.weights import random_model
from penstock.kernels import dispatch
from penstock.shard.models.reading import read_model_config
from penstock.shard.startup.tune import Job, jobs_of


def cases(context: Context) -> Cases:
    """Yields the kernels' jobs: those of few rows and of a step's budget first."""
    if dispatch.device().type != "cuda":
        yield "tuning", lambda: context.record("tuning", note="there is nothing to tune on this device")
        return
    def tune(name: str, job: Job):
        outcome = job.run()
        return context.record(name, **{
            "guess, us": 1e6 * outcome.default_seconds, "best, us": 1e6 * outcome.seconds,
            "configuration": " ".join(f"{key}={value}" for key, value in outcome.config.items())})

    with random_model(context.scale) as folder:
        config = read_model_config(folder)
    jobs = jobs_of(config, 1, context.scale.dtype, context.scale.step_tokens)
    wanted = sorted({16, 128, context.scale.step_tokens})
    for job in sorted(jobs, key=lambda job: job.num_rows not in wanted):
        name = f"{job.name}, {job.num_rows} rows"
        yield name, functools.partial(tune, name, job)
