"""Runs as lines for a terminal, and as JSON for programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from penstock.bench.load.measurement import (
    METRICS,
    PERCENTILES,
    TITLES,
    Run,
    counted_by,
    group_failures,
    statistics,
)

VERSION = 1
"""The version of the JSON, which goes up when a field changes its meaning."""
COLUMNS = ("mean", *(f"p{percent}" for percent in PERCENTILES))


def as_json(run: Run, limits: Mapping[str, float]) -> dict[str, Any]:
    """Returns a run's figures. Times are in milliseconds, but for `duration_s`; null stands for what was not seen."""
    lengths = [one.prompt_tokens for one in run.answered if one.prompt_tokens is not None]
    return {
        run.pace: run.level, "lengths": asdict(run.lengths) if run.lengths else None,
        "duration_s": run.duration, "is_interrupted": run.is_interrupted,
        "requests": len(run.measurements), "answered": len(run.answered), "failed": len(run.failures),
        "failures": [{"kind": kind, "count": len(details), "example": details[0]}
                     for kind, details in group_failures(run.failures).items()],
        "prompt_tokens": sum(lengths) if lengths else None, "output_tokens": run.num_tokens,
        "tokens_counted_by": counted_by(run.answered),
        "requests_per_second": run.requests_per_second, "output_tokens_per_second": run.tokens_per_second,
        **{f"{metric}_ms": statistics(run.values(metric)) for metric in METRICS},
        "goodput": {"limits_ms": dict(limits), "requests_per_second": run.goodput(limits)} if limits else None,
    }


def table(run: Run, limits: Mapping[str, float]) -> Iterator[str]:
    """Yields a run's figures as lines."""
    many = "interrupted: " if run.is_interrupted else ""
    which = f"{run.lengths} tokens, " if run.lengths else ""
    yield (f"{which}{run.pace} {run.level:g}: {many}{len(run.answered)} of {len(run.measurements)} requests answered "
           f"in {run.duration:.1f} s")
    if run.answered:
        yield (f"  {run.tokens_per_second:.1f} output tokens/s, {run.requests_per_second:.2f} requests/s; "
               f"{run.num_tokens} output tokens, {_counted(run)}{_prompts(run)}")
        yield f"  {'milliseconds':<24}" + "".join(f"{name:>10}" for name in COLUMNS)
        for metric, title in TITLES.items():
            if found := statistics(run.values(metric)):
                yield f"  {title:<24}" + "".join(f"{found[name]:10.1f}" for name in COLUMNS)
    if limits:
        shown = ", ".join(f"{name} ≤ {limit:g} ms" for name, limit in limits.items())
        share = sum(one.meets(limits) for one in run.measurements) / max(1, len(run.measurements))
        yield f"  goodput: {run.goodput(limits):.2f} requests/s ({share:.0%} of all) within {shown}"
    for kind, details in group_failures(run.failures).items():
        yield f"  failed, {len(details)} of them: {kind}" + (f": {details[0]}" if details[0] else "")


def overview(runs: Sequence[Run]) -> Iterator[str]:
    """Yields a header, and a line for each run."""
    yield (f"{runs[0].pace:>11}{'tokens/s':>11}{'requests/s':>12}{'ttft p50':>10}{'p99':>10}{'itl p50':>10}{'p99':>10}"
           f"{'e2e p50':>11}{'failed':>8}")
    for run in runs:
        cells = "".join(f"{run.percentile(metric, percent):10.1f}" for metric in ("ttft", "itl")
                        for percent in (50, 99))
        yield (f"{run.level:11g}{run.tokens_per_second:11.1f}{run.requests_per_second:12.2f}{cells}"
               f"{run.percentile('e2e', 50):11.1f}{len(run.failures):8}")


def latencies(runs: Sequence[Run]) -> Iterator[str]:
    """Yields a header, and a line for each run of a scenario: how long whole answers took, in milliseconds."""
    yield (f"{'prompt → answer':>16}{'as counted':>16}{runs[0].pace:>13}{'e2e p50':>11}{'p75':>10}{'p90':>10}"
           f"{'failed':>8}")
    for run in runs:
        shares = (run.percentile("e2e", percent) for percent in (50, 75, 90))
        cells = "".join(f"{share:{width}.1f}" for share, width in zip(shares, (11, 10, 10), strict=True))
        yield f"{run.lengths!s:>16}{_counted_lengths(run):>16}{run.level:13g}{cells}{len(run.failures):8}"


def _counted_lengths(run: Run) -> str:
    """Returns how many tokens prompts and answers have on average; a mark for prompts that the server doesn't count."""
    prompts = [one.prompt_tokens for one in run.answered if one.prompt_tokens is not None]
    answers = [one.num_tokens for one in run.answered]
    return " → ".join(f"{fmean(counts):.4g}" if counts else "?" for counts in (prompts, answers))


def _prompts(run: Run) -> str:
    if not run.prompt_lengths:
        return ""
    shortest, longest = min(run.prompt_lengths), max(run.prompt_lengths)
    return f"; prompts of {shortest}" + (f" to {longest}" if longest > shortest else "") + " tokens"


def _counted(run: Run) -> str:
    """Returns who counted the tokens, in words."""
    by = counted_by(run.answered)
    return "as the server counts" if by == "server" else f"for the server does not count: its {by}"
