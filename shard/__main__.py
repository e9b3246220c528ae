"""`python -m shard`: load a model, measure, then listen for a router."""

import logging
import signal
import sys
from pathlib import Path
from typing import Any

import click

from penstock.shard import log, process
from penstock.shard.config import DEFAULT_GRAPHS, ShardConfig


def _sizes(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    sizes = text.split(",")
    if not all(size.strip().isdecimal() for size in sizes):
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 1,2,4")
    return tuple(int(size) for size in sizes)


@click.command()
@click.option("--model", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="Directory of the checkpoint: config.json and safetensors files.")
@click.option("--model-id", metavar="NAME", help="What the model is called.  [default: DIR]")
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, help="This shard's place in its group.")
@click.option("--world-size", type=click.IntRange(1), default=1, show_default=True, help="Shards in the group.")
@click.option("--listen", required=True, metavar="ADDRESS",
              help="Where the router finds this shard: unix:/path or host:port.")
@click.option("--rendezvous", default="", metavar="URL",
              help="Where the group meets: file:///path of a file that does not exist yet, or tcp://host:port, where "
                   "rank 0 will listen. Not needed for a group of one.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]),
              help="Of the weights and the KV memory.  [default: the checkpoint's]")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True,
              help="What computes. auto is a GPU where there is one.")
@click.option("--deterministic", "is_deterministic", is_flag=True,
              help="Keep the bit contract on a GPU. A processor keeps it always.")
@click.option("--kv-memory", type=click.IntRange(1), metavar="BYTES",
              help="Of this shard.  [default: its part of a quarter of the free memory; what a GPU has left]")
@click.option("--kv-cache-dtype", type=click.Choice(["fp8_e4m3fn", "fp8_e5m2", "int8"]),
              help="Of the KV memory.  [default: the weights']")
@click.option("--cuda-memory-fraction", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True,
              help="Of a GPU's memory, that may be used.")
@click.option("--cuda-graphs", callback=_sizes, metavar="LIST",
              help="Rows of the steps that a GPU's graphs are captured for; 0 for none.  "
                   f"[default: {','.join(map(str, DEFAULT_GRAPHS))}]")
@click.option("--max-step-tokens", type=click.IntRange(1), default=4096, show_default=True,
              help="Tokens of the largest step that a GPU must have memory for.")
@click.option("--max-step-rows", type=click.IntRange(1), default=128, show_default=True,
              help="Rows of the largest step that a GPU must have memory for.")
@click.option("--block-size", type=click.IntRange(1), default=16, show_default=True, help="Tokens in a KV block.")
@click.option("--watermark-gamma", type=click.FloatRange(0, 1), default=0.5, show_default=True,
              help="The part of the vocabulary that a watermark prefers at each place.")
@click.option("--watermark-delta", type=float, default=2.0, show_default=True,
              help="What a watermark adds to the logits of that part.")
@click.option("--threads", type=click.IntRange(1),
              help="That compute.  [default: this shard's part of the physical cores]")
@click.option("--otlp-endpoint", metavar="URL",
              help="Of an OpenTelemetry collector, such as http://host:4317, to send spans of the steps to by gRPC.")
@click.option("--otlp-service-name", default="text-generation-inference.router", show_default=True, metavar="NAME",
              help="What the spans' service is called.")
@click.option("--ready-fd", type=int, metavar="FD", help="Write one byte to FD, and close it, once steps can be run.")
@click.option("--parent-pid", type=int, metavar="PID", help="End when PID is no longer this process's parent.")
@click.option("--json-output", is_flag=True, help="Log one JSON object a line, and show no progress bar.")
def main(parent_pid: int | None, json_output: bool, **settings: Any) -> None:
    """Serve one shard of a model to a router over gRPC.

    The address appears once the model can answer. SIGTERM lets the running step end and exits with 0.
    """
    config = ShardConfig(**settings)
    # Until something is served there is nothing to end in order, and Python would not notice in the middle of a wait.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if parent_pid is not None:
        process.end_with_parent(parent_pid)
    log.start(json_output, config.rank)
    try:
        # Importing torch takes a second, and choosing kernels, which importing one of them does, may be an error.
        from penstock.kernels import dispatch

        dispatch.configure(config.device, config.is_deterministic)
        from penstock.shard.startup.run import run

        run(config, has_bar=config.rank == 0 and not json_output)
    except (ValueError, OSError) as error:
        if json_output:
            logging.error("%s", error)
        else:
            print(f"shard {config.rank}: {error}", file=sys.stderr)
        process.leave(1)
    except Exception:
        logging.exception("the shard ends")
        process.leave(1)
    process.leave(0)


if __name__ == "__main__":
    main()
