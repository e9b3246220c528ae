"""A plan as text and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.bench.planning.costs import decode_work, prompt_work
from penstock.bench.planning.groups import Choice, Way
from penstock.bench.planning.model_size import ModelSize
from penstock.bench.planning.traffic import Traffic

PROMPT = 1024
BATCHES = 1, 8, 32, 128
PERCENTS = 50, 75, 90, 99


def size_lines(name: str, size: ModelSize, by_format: Mapping[str, int]) -> Iterator[str]:
    """Yields the lines about the sizes of a model."""
    yield (f"{name}: {size.num_parameters / 1e9:.2f} billion parameters, {size.config.num_layers} layers, context of "
           f"{size.config.context_length} tokens")
    mixture = f", of which a token is multiplied by {size.active / 1e9:.2f} billion" if size.expert_bytes else ""
    yield f"weights in {size.format}: {in_bytes(size.weight_bytes)}{mixture}"
    if others := [f"{in_bytes(number)} in {name}" for name, number in by_format.items() if name != size.format]:
        yield f"it would be {', '.join(others)}"
    state = f", and {in_bytes(size.state_bytes)} for each sequence" if size.state_bytes else ""
    yield f"keys and values of a token: {size.kv_bytes():,.0f} bytes{state}"


def size_json(size: ModelSize, by_format: Mapping[str, int]) -> dict[str, Any]:
    return {"parameters": size.num_parameters, "active_parameters": size.active, "format": size.format,
            "weight_bytes": size.weight_bytes, "weight_bytes_by_format": {**by_format},
            "kv_bytes_per_token": size.kv_bytes(),
            "state_bytes_per_sequence": size.state_bytes, "context_length": size.config.context_length}


def rates(way: Way) -> dict[str, float]:
    """Returns the tokens a second of a group: of prompts, and of decode steps of as many sequences, each behind a
    prompt of PROMPT tokens, as its memory holds."""
    found = {"prompt": PROMPT / way.cost.seconds(prompt_work(PROMPT))}
    for sequences in BATCHES:
        if sequences * PROMPT <= way.fit.kv_tokens:
            found[f"decode, {sequences}"] = sequences / way.cost.seconds(decode_work(sequences, PROMPT))
    return found


def fit_table(ways: Sequence[Way]) -> Iterator[list[str]]:
    """Yields a head, and a row for each way in which the model fits on a machine."""
    yield ["machine", "GPUs", "$/h", "$/month", "num_shard", "groups", "KV tokens of a group", "prompt, tokens/s",
           *(f"decode, {number}" for number in BATCHES)]
    for way in ways:
        by_name, machine = rates(way), way.fit.machine
        yield [machine.name, machine.accelerators, f"{machine.price:.2f}", f"{machine.monthly:,.0f}",
               str(way.fit.num_shards), str(way.fit.groups), f"{way.fit.kv_tokens:,}",
               *(f"{by_name[name]:,.0f}" if name in by_name else "–"
                 for name in ("prompt", *(f"decode, {number}" for number in BATCHES)))]


def fit_json(way: Way) -> dict[str, Any]:
    machine = way.fit.machine
    return {"machine": machine.name, "accelerators": machine.accelerators, "dollars_per_hour": round(machine.price, 4),
            "dollars_per_month": round(machine.monthly, 2), "priced": machine.priced, "num_shard": way.fit.num_shards,
            "groups": way.fit.groups, "kv_tokens": way.fit.kv_tokens, "tokens_per_second": rates(way)}


def traffic_line(traffic: Traffic, first_token: float, percent: float) -> str:
    about = "on average " if traffic.varied else ""
    return (f"{traffic.rate:g} requests/s, prompts of {about}{traffic.prompt} tokens, answers of {about}"
            f"{traffic.answer}; {percent:g} % are to have their first token within {first_token:g} s")


def choice_table(choices: Sequence[Choice], traffic: Traffic) -> Iterator[list[str]]:
    """Yields a head, and a row for each choice."""
    yield ["machine", "num_shard", "groups", "machines", "$/h", "$/month", "first token, p50, s", "p90", "p99",
           "per token, p50, ms", "busy", "$ per million tokens of answers", "of all"]
    for choice in choices:
        outcome = choice.outcome
        yield [choice.way.fit.machine.name, str(choice.way.fit.num_shards), str(choice.groups), str(choice.machines),
               f"{choice.price:.2f}", f"{choice.monthly:,.0f}",
               *(f"{outcome.first_token(percent):.3f}" for percent in (50, 90, 99)),
               f"{1e3 * outcome.per_token(50):.1f}", f"{outcome.busy / outcome.seconds:.0%}",
               f"{choice.per_million(traffic):.2f}", f"{choice.per_million(traffic, counts_prompts=True):.2f}"]


def choice_json(choice: Choice, traffic: Traffic) -> dict[str, Any]:
    outcome = choice.outcome
    return {"machine": choice.way.fit.machine.name, "num_shard": choice.way.fit.num_shards, "groups": choice.groups,
            "machines": choice.machines, "dollars_per_hour": round(choice.price, 4),
            "dollars_per_month": round(choice.monthly, 2),
            "first_token_seconds": {f"p{percent}": outcome.first_token(percent) for percent in PERCENTS},
            "seconds_per_token": {f"p{percent}": outcome.per_token(percent) for percent in PERCENTS}
            if traffic.answer > 1 else None,
            "busy": outcome.busy / outcome.seconds, "group_tokens_per_second": outcome.tokens_per_second,
            "dollars_per_million_answer_tokens": choice.per_million(traffic),
            "dollars_per_million_tokens": choice.per_million(traffic, counts_prompts=True)}


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table, the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join([first.ljust(widths[0]), *cells])


def in_bytes(number: float) -> str:
    """Returns a number of bytes with the unit that suits it."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if number >= unit:
            return f"{number / unit:.2f} {name}"
    return f"{number:.0f} bytes"
