"""Steps of the engine broken down: how long the device rests, and what it does meanwhile, kernel by kernel."""

from collections.abc import Callable

from penstock.bench.gpu.engine import Measured
from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.profile import Profile
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.scale import mixed_name

LISTED = 12
"""Kernels of a step that have a row of their own."""


def cases(context: Context) -> Cases:
    scale, measured = context.scale, Measured(context)
    yield "load", measured.load

    def case(name: str, profile: Callable[[], Profile]) -> tuple[str, Callable[[], list[Record]]]:
        return name, lambda: broken_down(context, name, profile())

    for batch in scale.profiled_batches:
        yield case(f"decode, {batch} × {scale.prompt}",
                   lambda batch=batch: measured.runner.profile_decode(batch))
    for batch, chunk in scale.mixed[:1]:
        yield case(mixed_name(batch, scale.prompt, chunk),
                   lambda batch=batch, chunk=chunk: measured.runner.profile_mixed(batch, chunk))
    tokens = scale.prefills[0]
    yield case(f"prefill {tokens}", lambda: measured.runner.profile_prefill(tokens))


def broken_down(context: Context, name: str, found: Profile) -> list[Record]:
    """Returns a record of a step, and one of each of its longest kernels, which have all but what is told as rest."""
    busy = sum(kernel.seconds for kernel in found.kernels)

    def told(kernel: str, seconds: float, launches: float) -> Record:
        return context.record(f"{name}: {kernel}", **{
            "us": 1e6 * seconds, "launches": launches, "% of the kernels": 100 * seconds / busy})

    listed, others = found.kernels[:LISTED], found.kernels[LISTED:]
    records = [context.record(name, **{
        "us": 1e6 * found.rests.busy_seconds, "launches": sum(kernel.launches for kernel in found.kernels),
        "idle %": found.rests.share, "between steps %": found.rests.share_between})]
    records += [told(kernel.name, kernel.seconds, kernel.launches) for kernel in listed]
    if others:
        records.append(told(f"{len(others)} others", sum(kernel.seconds for kernel in others),
                            sum(kernel.launches for kernel in others)))
    return records
