"""What a JSON schema costs: the time per token of requests that have one, against those that have none.

`python -m penstock.bench.grammar` starts Penstock once and sends both kinds of load in turns.
"""

import asyncio
import json
import tempfile
from pathlib import Path
from statistics import median

import click

from penstock.bench.children import Child, exit_on_sigterm
from penstock.bench.load import Load, generate_load
from penstock.bench.model import existing_model
from penstock.bench.peers import DIRECTORY, own_server
from penstock.bench.prompts import PromptWriter
from penstock.bench.serve import wait_until_ready
from tests.e2e.server import free_port

SCHEMA = {
    "type": "array", "minItems": 1000, "items": {
        "type": "object", "additionalProperties": False, "required": ["name", "age", "email", "tags"], "properties": {
            "name": {"type": "string", "maxLength": 24}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "email": {"type": "string", "format": "email"},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 4}}}}
"""Of an answer that has not ended after as many tokens as are measured."""


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
    server, writer = own_server(model, port, []), PromptWriter(model, prompt)
    url = f"http://127.0.0.1:{port}"
    shape = {"response_format": {"type": "json_schema", "json_schema": {"name": "people", "schema": SCHEMA}}}
    ratios = []
    with (tempfile.TemporaryDirectory() as folder,
          Child(server.name, server.command, Path(folder), server.environment) as child):
        wait_until_ready(child, url)

        def measure(fields: dict[str, object]) -> Load:
            prompts = [writer.write() for _ in range(concurrency)]
            load = asyncio.run(generate_load(url, concurrency, prompts, new, **fields))
            assert not load.failures, load.failures[0]
            assert load.num_tokens == concurrency * new, f"{load.num_tokens} tokens"
            return load

        measure(shape)
        for _ in range(rounds):
            free, bound = (1e3 * median(measure(fields).per_token) for fields in ({}, shape))
            ratios.append(bound / free)
            print(f"{free:.2f} ms a token without, {bound:.2f} ms with: × {ratios[-1]:.3f}")
    print(json.dumps({"concurrency": concurrency, "ratio": round(median(ratios), 3)}))


if __name__ == "__main__":
    main()
