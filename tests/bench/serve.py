"""How fast a server answers: throughput, latency and processor time against concurrency, as a table and a picture.

`python -m tests.bench.serve` starts a server of its own on MODEL_ID (the demo model), runs the load, and writes
build/bench.png.
"""

import asyncio
import tempfile
from pathlib import Path

import click
import matplotlib.pyplot as plt
import psutil

from tests.bench.load import Load, generate_load, percentile
from tests.e2e.server import DEMO_MODEL, Server, serve

PICTURE = Path("build/bench.png")
SHARES = (0.5, 0.9, 0.99)
HEADER = ("concurrency  tokens/s   first token ms, p50 p90 p99   between tokens ms, p50 p90 p99   "
          "CPU s per 1,000 tokens: router  shards")


def cpu_seconds(server: Server, module: str) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in server.children(module))


def milliseconds(values: list[float]) -> str:
    return " ".join(f"{1e3 * percentile(values, share):7.1f}" for share in SHARES)


def draw(loads: list[Load]) -> None:
    concurrency = [load.concurrency for load in loads]
    figure, (throughput, latency) = plt.subplots(1, 2, figsize=(10, 4))
    throughput.plot(concurrency, [load.tokens_per_second for load in loads], marker="o")
    throughput.set(xlabel="concurrency", ylabel="output tokens/s", ylim=(0, None))
    for share in SHARES:
        between = [1e3 * percentile(load.between, share) for load in loads]
        latency.plot(concurrency, between, marker="o", label=f"between tokens, p{share * 100:g}")
    first = [1e3 * percentile(load.first, 0.5) for load in loads]
    latency.plot(concurrency, first, marker="o", label="first token, p50")
    latency.set(xlabel="concurrency", ylabel="ms", ylim=(0, None))
    latency.legend()
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=120, bbox_inches="tight")


@click.command(help=__doc__)
@click.option("--model-id", default=str(DEMO_MODEL), envvar="MODEL_ID", help="A directory.  [default: the demo model]")
@click.option("--num-shard", default=2, show_default=True, envvar="NUM_SHARD")
@click.option("--concurrency", default="1,4,16,32", show_default=True)
@click.option("--requests", default=4, show_default=True, help="Per client.")
@click.option("--prompt", default=128, show_default=True, help="Tokens of each prompt.")
@click.option("--new", default=64, show_default=True, help="Tokens of each answer, at most.")
def main(model_id: str, num_shard: int, concurrency: str, requests: int, prompt: int, new: int) -> None:
    loads = []
    with (tempfile.TemporaryDirectory() as folder,
          serve(Path(folder), "--num-shard", str(num_shard), model=Path(model_id)) as server):
        asyncio.run(generate_load(server.url, 2, 2, prompt, new))
        print(HEADER)
        for number in map(int, concurrency.split(",")):
            before = [cpu_seconds(server, module) for module in ("router", "shard")]
            load = asyncio.run(generate_load(server.url, number, number * requests, prompt, new))
            router, shards = (1e3 * (cpu_seconds(server, module) - start) / load.num_tokens
                              for module, start in zip(("router", "shard"), before, strict=True))
            loads.append(load)
            print(f"{number:11}  {load.tokens_per_second:8.1f}   {milliseconds(load.first):>26}   "
                  f"{milliseconds(load.between):>29}   {router:30.2f}  {shards:6.2f}")
    draw(loads)
    print(f"Drawn in {PICTURE}; {psutil.cpu_count(logical=False)} cores")


if __name__ == "__main__":
    main()
