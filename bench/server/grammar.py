"""Measures the cost of a JSON schema: the time per token of requests that have one, against those that have none.

`python -m penstock.bench.server.grammar` starts Penstock once and sends both kinds of load in turns.
"""

import asyncio
import json
from pathlib import Path
from statistics import median
from typing import Any

import click

from penstock.bench.load.apis import APIS
from penstock.bench.load.client import Target
from penstock.bench.load.generator import Concurrency, generate_load
from penstock.bench.load.measurement import Run
from penstock.bench.load.prompts import RandomPrompts, load_tokenizer
from penstock.bench.programs.children import exit_on_sigterm, free_port
from penstock.bench.programs.model import existing_model
from penstock.bench.programs.peers import DIRECTORY, own_server
from penstock.bench.server.running import running

SCHEMA = {
    "type": "array", "minItems": 1000, "items": {
        "type": "object", "additionalProperties": False, "required": ["name", "age", "email", "tags"], "properties": {
            "name": {"type": "string", "maxLength": 24}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "email": {"type": "string", "format": "email"},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 4}}}}
"""The schema of an answer that has not ended after as many tokens as are measured."""


@click.command(help=__doc__)
@click.option("--model-id", type=DIRECTORY, envvar="MODEL_ID", help="A directory.  [default: a random model of "
              "SmolLM2-360M's shape]")
@click.option("--concurrency", default=16, show_default=True)
@click.option("--prompt", default=32, show_default=True, help="Tokens of each prompt.")
@click.option("--new", default=96, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", default=5, show_default=True)
def main(model_id: Path | None, concurrency: int, prompt: int, new: int, rounds: int) -> None:
    exit_on_sigterm()
    model, port = existing_model(model_id), free_port()
    prompts = RandomPrompts(prompt, tokenizer=load_tokenizer(str(model)))
    shape = {"response_format": {"type": "json_schema", "json_schema": {"name": "people", "schema": SCHEMA}}}
    ratios = []

    def measure(fields: dict[str, Any]) -> Run:
        target = Target(f"http://127.0.0.1:{port}", APIS["openai"], fields={"ignore_eos": True, **fields})
        run = asyncio.run(generate_load(target, Concurrency(concurrency), prompts.take(concurrency, new)))
        if run.failures or run.num_tokens != concurrency * new:
            raise click.ClickException(f"{run.num_tokens} tokens; failed: {run.failures[:1]}")
        return run

    with running(own_server(model, port, []), port):
        measure(shape)
        for _ in range(rounds):
            free, bound = (median(measure(fields).values("tpot")) for fields in ({}, shape))
            ratios.append(bound / free)
            print(f"{free:.2f} ms a token without, {bound:.2f} ms with: × {ratios[-1]:.3f}")
    print(json.dumps({"concurrency": concurrency, "ratio": round(median(ratios), 3)}))


if __name__ == "__main__":
    main()
