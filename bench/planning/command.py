"""The command `penstock plan`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from tqdm import tqdm

from penstock.bench.planning import report
from penstock.bench.planning.costs import REACH, Roofline
from penstock.bench.planning.finding import find_config, find_model
from penstock.bench.planning.fits import STEP_ROWS, Fit, fits
from penstock.bench.planning.groups import Choice, Target, Way, choose
from penstock.bench.planning.machines import MACHINES, Accelerator, Machine
from penstock.bench.planning.model_size import ModelSize, bytes_by_format, read_model_size
from penstock.bench.planning.traffic import Traffic
from penstock.shard.execution.kv_cache import KV_DTYPES
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.reading import DTYPES
from penstock.shard.models.rounding_methods import ROUNDINGS

Command = TypeVar("Command", bound=Callable[..., None])
OF_TRAFFIC = "prompt", "answer", "varied", "requests", "first_token", "percent", "max_batch_size"
HERE = "this machine"


def traffic_options(command: Command) -> Command:
    """Adds the options that describe traffic."""
    for option in (
        click.option("--max-batch-size", type=click.IntRange(1, 4095), default=STEP_ROWS, show_default=True,
                     help="Sequences of a group that run at once, as of `serve`."),
        click.option("--percentile", "percent", type=click.FloatRange(0, 100, min_open=True), default=90.0,
                     show_default=True, help="How many of a hundred requests are to meet the target."),
        click.option("--target-first-token", "first_token", type=click.FloatRange(0, min_open=True), default=1.0,
                     show_default=True, help="Seconds to the first token."),
        click.option("--requests", type=click.IntRange(10), default=200, show_default=True,
                     help="That are simulated for each number of groups, or more if that many are soon answered."),
        click.option("--varied", is_flag=True, help="Lengths are exponential, with these means, up to 4 times as many "
                                                    "tokens."),
        click.option("--answer-tokens", "answer", type=click.IntRange(1), default=128, show_default=True),
        click.option("--prompt-tokens", "prompt", type=click.IntRange(1), default=512, show_default=True),
        click.option("--rate", type=click.FloatRange(0, min_open=True), help="Requests a second, for which groups are "
                                                                             "counted."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("model", metavar="MODEL", envvar="MODEL_ID")
@click.option("--revision", help="Commit or branch on the Hugging Face Hub.")
@click.option("--dtype", type=click.Choice(list(DTYPES)),
              help="Number format of weights and activations.  [default: the checkpoint's own]")
@click.option("--quantize", type=click.Choice(list(ROUNDINGS)), help="Round the weights, as `serve --quantize` does.")
@click.option("--kv-cache-dtype", type=click.Choice(list(KV_DTYPES)), help="Number format of keys and values.")
@click.option("--machine", "machines", type=click.Choice(list(MACHINES)), multiple=True,
              help="Plan for this machine; may be repeated.  [default: all of the table]")
@click.option("--num-shard", type=click.IntRange(1), help="GPUs of a group.  [default: all numbers that fit]")
@click.option("--reach", type=click.FloatRange(0, 1, min_open=True), default=REACH, show_default=True,
              help="Share of the GPUs' peaks that steps reach.")
@click.option("--measure", is_flag=True, help="Plan for machines like this one: serve MODEL here, and measure steps.")
@click.option("--price", type=click.FloatRange(0), help="Dollars an hour of this machine, for --measure.  [default: 0]")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Of --measure.")
@traffic_options
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON.")
@click.option("--picture", "picture_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Draw the plan into this .svg (needs matplotlib).")
@click.pass_context
def main(
    context: click.Context, model: str, revision: str | None, dtype: str | None, quantize: str | None,
    kv_cache_dtype: str | None, machines: tuple[str, ...], num_shard: int | None, reach: float, measure: bool,
    price: float | None, rounds: int, rate: float | None, prompt: int, answer: int, varied: bool, requests: int,
    first_token: float, percent: float, max_batch_size: int, as_json: bool, picture_file: Path | None,
) -> None:
    """Plan the machines that MODEL needs, a directory or a name on the Hugging Face Hub, from its config.json alone.

    docs/planning.md says how to read the figures.
    """
    check_options(context)
    if picture_file:
        from penstock.bench.planning import picture  # it needs what others do not
        picture.check_file(picture_file)
    directory = find_model(model, revision) if measure else find_config(model, revision)
    try:
        by_format = bytes_by_format(directory)
        size = read_model_size(directory, dtype, quantize, KV_DTYPES[kv_cache_dtype] if kv_cache_dtype else None)
    except ModelConfigError as error:
        raise click.ClickException(str(error)) from None
    traffic = Traffic(prompt, answer, rate or 0.0, number=requests, varied=varied)
    needed = traffic.longest if rate else size.config.context_length
    if measure:
        flags = {"--dtype": dtype, "--quantize": quantize, "--kv-cache-dtype": kv_cache_dtype,
                 "--num-shard": num_shard}
        ways = [measured_way(directory, flags, num_shard or 1, price or 0.0, rounds)]
    else:
        ways = ways_on(machines or tuple(MACHINES), size, num_shard, needed, reach)
    choices = find_choices(ways, traffic, Target(first_token, percent), max_batch_size) if rate else []
    if as_json:
        sizes = report.size_json(size, by_format)
        click.echo(json.dumps({"model": model, **sizes, **to_json(ways, choices, traffic)}))
    else:
        lines = [*report.size_lines(model, size, by_format), ""]
        if rate:
            lines += [report.traffic_line(traffic, first_token, percent), ""]
        click.echo("\n".join([*lines, *to_text(ways, choices, traffic)]))
    if picture_file:
        picture.draw(f"{model}, {size.format}", size, ways, choices, picture_file)


def check_options(context: click.Context) -> None:
    """Raises UsageError for options that were given and have nothing to do."""
    given = {option.name: option.opts[0] for option in context.command.params
             if context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE}
    values = context.params
    if values["rate"] is None and (alone := [name for key, name in given.items() if key in OF_TRAFFIC]):
        raise click.UsageError(f"{alone[0]} is for --rate")
    if values["measure"]:
        if no_use := [name for key, name in given.items() if key in ("machines", "reach")]:
            raise click.UsageError(f"{no_use[0]} is not for --measure, which plans for this machine")
    elif alone := [name for key, name in given.items() if key in ("price", "rounds")]:
        raise click.UsageError(f"{alone[0]} is for --measure")
    if values["answer"] == 1 and values["rate"] is not None and values["varied"]:
        raise click.UsageError("--varied needs --answer-tokens above 1")


def ways_on(machines: Sequence[str], size: ModelSize, num_shard: int | None, needed: int, reach: float) -> list[Way]:
    """Returns the ways in which a model fits on these machines, or those over `num_shard` GPUs, by the roofline."""
    return [Way(fit, Roofline(size, fit.machine.accelerator, fit.num_shards, reach))
            for name in machines for fit in fits(size, MACHINES[name], needed) if num_shard in (None, fit.num_shards)]


def measured_way(model: Path, flags: dict[str, Any], num_shards: int, price: float, rounds: int) -> Way:
    """Serves a model on this machine, and returns its group with the cost that was measured."""
    from penstock.bench.planning.measuring import measure, served
    from penstock.bench.programs.children import exit_on_sigterm

    exit_on_sigterm()
    given = [text for name, value in flags.items() if value is not None for text in (name, str(value))]
    with served(model, given) as server:
        cost = measure(server, rounds)
    machine = Machine(HERE, Accelerator("its devices", 0, 0, 0), num_shards, price, "--price")
    return Way(Fit(machine, num_shards, server.kv_tokens), cost)


def find_choices(ways: Sequence[Way], traffic: Traffic, target: Target, slots: int) -> list[Choice]:
    """Returns how many groups of each kind meet the target, the cheapest first."""
    found = [choose(way, traffic, target, slots) for way in tqdm(ways, unit="kind", leave=False)]
    return sorted((choice for choice in found if choice is not None), key=lambda choice: choice.price)


def to_json(ways: Sequence[Way], choices: Sequence[Choice], traffic: Traffic) -> dict[str, Any]:
    return {"fits": [report.fit_json(way) for way in ways],
            "choices": [report.choice_json(choice, traffic) for choice in choices] if traffic.rate else None}


def to_text(ways: Sequence[Way], choices: Sequence[Choice], traffic: Traffic) -> list[str]:
    if not ways:
        needed = f"a sequence of {traffic.longest} tokens" if traffic.rate else "one full context"
        return [f"It fits on none of these machines with room for {needed}."]
    lines = [*report.aligned(list(report.fit_table(ways)))]
    if traffic.rate:
        lines += [""]
        lines += report.aligned(list(report.choice_table(choices, traffic))) if choices else [
            "No number of these groups meets that: one alone takes longer, or its memory is too small."]
    return lines


if __name__ == "__main__":
    main()
