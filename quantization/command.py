"""`penstock quantize`: makes a checkpoint of small whole numbers of one of plain numbers."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from penstock.quantization.perplexity import perplexity
from penstock.quantization.report import Report
from penstock.quantization.run import Job, quantise
from penstock.quantization.settings import BITS, FORMATS, METHODS, USUAL_PERCENTILE, SettingsError, make_settings
from penstock.quantization.texts import random_windows, windows_of
from penstock.shard.communication.own_inputs import NUM_SEGMENTS
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.reading import read_model_config

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
GIGABYTE = 1e9


def _number(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    return None if value is None else int(value)


@click.command(help="Quantise MODEL, a directory with a checkpoint of plain weights, into the directory OUT.\n\n"
                    "A run that was interrupted goes on where it stopped, with the same settings. OUT gets report.json "
                    "and report.svg with the error of each linear.")
@click.argument("model", type=DIRECTORY)
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--method", type=click.Choice(METHODS), default="gptq", show_default=True,
              help="How the codes are chosen; docs/quantisation.md explains each.")
@click.option("--bits", type=click.Choice([str(bits) for bits in BITS]), callback=_number,
              help="Of a weight.  [default: 4; 8 for smoothquant and llm-int8]")
@click.option("--granularity", type=click.Choice(["tensor", "channel", "group"]),
              help="What shares a scale.  [default: group; channel for smoothquant and llm-int8]")
@click.option("--group", type=click.IntRange(0), help="Inputs of a group; 0 stands for --granularity channel.  "
              "[default: 128; 64 for squeezellm]")
@click.option("--symmetric/--asymmetric", default=True, show_default=True, help="Whether 0 lies amid the levels.")
@click.option("--calibrator", type=click.Choice(["min-max", "percentile", "mse"]),
              help="How far the levels reach.  [default: min-max; mse for awq]")
@click.option("--percentile", type=click.FloatRange(50, 100, min_open=True), help="Of the weights that lie within the "
              f"levels, for --calibrator percentile.  [default: {USUAL_PERCENTILE}]")
@click.option("--calibration", type=FILE, help="A text in UTF-8, like those that the model will read; rtn and llm-int8 "
              "need none, and their report is then of tokens at random.")
@click.option("--samples", type=click.IntRange(2), default=64, show_default=True, help="Parts of the text to use.")
@click.option("--length", type=click.IntRange(16), default=512, show_default=True, help="Tokens of such a part.")
@click.option("--judge", type=FILE, help="Another text, whose perplexity is measured before and after.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Of the files.  [default: compressed-tensors; "
              "levels for squeezellm]")
def main(
    model: Path, out: Path, calibration: Path | None, samples: int, length: int, judge: Path | None, **chosen: Any
) -> None:
    try:
        config = read_model_config(model)
        if config.quantization.name:
            raise SettingsError(f"{model} is already quantised ({config.quantization.name})")
        if config.place.is_transposed:
            raise SettingsError(f"{model}: the linears of {config.architecture} are stored [inputs, outputs], of "
                                "which no quantised form is known")
        _check_blocks(model, config)
        settings = make_settings(**chosen, scale_dtype=config.dtype)
        length = min(length, config.context_length)
        tokenizer = model / "tokenizer.json"
        if calibration is None and settings.needs_text:
            raise SettingsError(f"--method {settings.method} chooses the codes by a text: give one as --calibration")
        windows = (random_windows(config.vocab_size, samples, length) if calibration is None
                   else windows_of(calibration, tokenizer, samples, length))
        judged = windows_of(judge, tokenizer, samples, length) if judge else None
        report = quantise(Job(model.resolve(), out, settings, windows), has_bar=sys.stderr.isatty())
        if judged is not None:
            report = replace(report, perplexity_before=perplexity(model, judged),
                             perplexity_after=perplexity(out, judged))
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    report.write(out)
    _say(report, out)


def _check_blocks(model: Path, config: ModelConfig) -> None:
    """Raises SettingsError for blocks with other linears than q, k, v, output, gate, up and down, or with odd ones."""
    if config.experts is not None or config.recurrence is not None or config.attention.latent is not None:
        raise SettingsError(f"{model}: blocks of {config.architecture} have experts, a state or latent rows, whose "
                            "linears no method rounds yet; --quantize rounds them when they are loaded")
    odd = [size for size in config.inner_sizes.values() if size % NUM_SEGMENTS]
    if odd:
        raise SettingsError(f"{model}: the inner size {odd[0]} is no multiple of {NUM_SEGMENTS}")


def _say(report: Report, out: Path) -> None:
    mean = sum(each.error for each in report.linears) / len(report.linears)
    largest = max(each.error for each in report.linears)
    click.echo(f"{out}: {report.bytes_after / GIGABYTE:.3f} GB of {report.bytes_before / GIGABYTE:.3f}; squared error "
               f"of a linear's outputs, mean {mean:.2e}, largest {largest:.2e}")
    outliers = sum(each.outliers for each in report.linears)
    if outliers:
        click.echo(f"{outliers} inputs of linears were 6 or more: outliers to LLM.int8()")
    if report.perplexity_before is not None and report.perplexity_after is not None:
        more = report.perplexity_after / report.perplexity_before - 1
        click.echo(f"perplexity {report.perplexity_before:.4f}, then {report.perplexity_after:.4f}: {more:+.2%}")


if __name__ == "__main__":
    main()
