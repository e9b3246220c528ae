"""The options of `penstock bench engine` that concern policies of batching, and the comparison that they ask for."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

from penstock.bench.batching.drive import POLICIES
from penstock.bench.batching.runs import table, to_json
from penstock.bench.programs import record

Command = TypeVar("Command", bound=Callable[..., None])
OTHERS = ("prefill", "is_sampled", "quantize", "beside", "transformers", "checkout", "vllm", "llama", "gguf")
"""The options that have nothing to do with policies."""
OWN = ("gap", "json_file")
"""Those that have nothing to do without them."""


def policy_options(command: Command) -> Command:
    """Adds the options that choose policies, and how requests come to them."""
    for option in (
        click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
                     help="Where to write the raw figures of the policies."),
        click.option("--gap", type=click.FloatRange(min=0), default=0.0, show_default=True,
                     help="Seconds from one request to the next on average, for policies; 0: all come at once."),
        click.option("--policy", "policies", type=click.Choice(POLICIES), multiple=True,
                     help="Measure batching by this policy instead; may be repeated. Requests have lengths of their "
                          "own then: --prompt and --new are the longest, --sequences the slots."),
    ):
        command = option(command)
    return command


def check_policy_options(context: click.Context) -> None:
    """Raises UsageError for options that were given and have nothing to do."""
    has_policies = bool(context.params["policies"])
    for option in context.command.params:
        if context.get_parameter_source(str(option.name)) is not ParameterSource.COMMANDLINE:
            continue
        if has_policies and option.name in OTHERS:
            raise click.UsageError(f"{option.opts[0]} is not for --policy, which compares policies of one engine")
        if not has_policies and option.name in OWN:
            raise click.UsageError(f"{option.opts[0]} is for --policy")


def compare(
    model: Path, name: str, threads: int, policies: Sequence[str], slots: Sequence[int], rounds: int, prompt: int,
    new: int, gap: float, json_file: Path | None,
) -> Iterator[list[str]]:
    """Measures the policies on the model of a directory, keeps the figures under its name, and yields their table."""
    from penstock.bench.batching.policies import measure

    runs = measure(model, threads, list(dict.fromkeys(policies)), slots, rounds, prompt, new, gap)
    if json_file:
        coming = f"one every {gap:g} s" if gap else "all at once"
        record.write(json_file, "policies", f"{name}, prompts of up to {prompt} tokens, answers of up to {new}, a "
                                            f"quarter of that on average, {coming}", to_json(runs))
    yield from table(runs)
