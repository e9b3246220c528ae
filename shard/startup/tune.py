"""`python -m penstock.shard.startup.tune`: measure at a model's shapes, with random weights, what kernels read."""

import bisect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import torch

    from penstock.kernels.tuning import Outcome
    from penstock.shard.models.config import ModelConfig

MIN_ROWS = 16
BLOCK_SIZE = 16
DECODED, ATTENDED = 64, 2048             # sequences, and tokens of each, that decode attention is measured with
MAX_HEAD_ROWS = 256
"""A step's logits are of few of its tokens: each sequence's last, and a slice of a prompt's at a time."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Describes one linear of a model as a rank has it: [outputs, inputs]."""

    name: str
    outputs: int
    inputs: int
    segments: int = 1
    is_float32: bool = False             # what comes out
    max_rows: int | None = None

    def tune(self, num_rows: int, dtype: "torch.dtype") -> "Outcome":
        import torch

        from penstock.kernels import dispatch
        from penstock.kernels.linear import any_order, fixed_order

        x, weight = (torch.randn(rows, self.inputs, dtype=dtype, device=dispatch.device())
                     for rows in (num_rows, self.outputs))
        out_dtype = torch.float32 if self.is_float32 else dtype
        if dispatch.is_deterministic():
            return fixed_order.tune(x, weight, self.segments, out_dtype)
        return any_order.tune(x, weight, out_dtype)


@dataclass(frozen=True, slots=True)
class Attention:
    """Describes the heads of a rank, and how many tokens a decode row attends to."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int

    def tune(self, phase: str, num_rows: int, dtype: "torch.dtype") -> "Outcome":
        """`num_rows`: of decode, sequences; of prefill, the tokens of one."""
        import torch

        from penstock.kernels import dispatch
        from penstock.kernels.paged_attention import allocate_cache, gpu

        device, is_decode = dispatch.device(), phase == "decode"
        num_blocks = -(-(self.context_length if is_decode else num_rows) // BLOCK_SIZE)
        num_sequences = num_rows if is_decode else 1
        cache = allocate_cache(num_sequences * num_blocks, block_size=BLOCK_SIZE, num_kv_heads=self.num_kv_heads,
                               head_dim=self.head_dim, dtype=dtype, device=device)
        cache.data.view(dtype).normal_()
        tables = torch.randperm(cache.num_blocks, dtype=torch.int32, device=device).view(num_sequences, num_blocks)
        start, count = (self.context_length - 1, 1) if is_decode else (0, num_rows)
        starts, counts = (torch.full((num_sequences,), value, dtype=torch.int32, device=device)
                          for value in (start, count))
        q = torch.randn(num_rows, self.num_heads, self.head_dim, dtype=dtype, device=device)
        return gpu.tune(phase, q, cache, tables, starts, counts)


@dataclass(frozen=True, slots=True)
class Job:
    """Names one kernel to measure at one number of tokens."""

    name: str
    num_rows: int
    run: Callable[[], "Outcome"]


@click.command()
@click.option("--model", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="Directory of the checkpoint, of which config.json alone is read.")
@click.option("--world-size", type=click.IntRange(1), default=1, show_default=True, help="Shards in the group.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]),
              help="Of the weights.  [default: the checkpoint's]")
@click.option("--device", type=click.Choice(["auto", "cuda"]), default="auto", show_default=True)
@click.option("--deterministic", is_flag=True, help="Tune the kernels of the bit contract.")
@click.option("--max-rows", type=click.IntRange(1), default=4096, show_default=True, help="The most tokens of a step.")
def main(model: Path, world_size: int, dtype: str | None, device: str, deterministic: bool, max_rows: int) -> None:
    """Measure a GPU's kernels at the shapes of a model, and save the fastest configurations for its shards."""
    try:
        run(model, world_size, dtype, device, deterministic, max_rows)
    except (ValueError, OSError) as error:
        print(f"tune: {error}", file=sys.stderr)
        sys.exit(1)


def run(model: Path, world_size: int, dtype: str | None, device: str, is_deterministic: bool, max_rows: int) -> None:
    """Measure and save. Raises ValueError or OSError for what is wrong with the settings or the checkpoint."""
    from tqdm import tqdm  # torch, which the rest needs, takes a second to import

    from penstock.kernels import dispatch

    dispatch.configure(device, is_deterministic)
    if dispatch.kernel_set() != "gpu":
        raise ValueError("there is nothing to tune: only a GPU's kernels have configurations, and this process runs "
                         f"the kernels {dispatch.path()}")
    from penstock.kernels import tuning  # which needs Triton
    from penstock.shard.models.reading import DTYPES, read_model_config  # which brings the ops

    config = read_model_config(model)
    config.check_world_size(world_size)
    jobs = jobs_of(config, world_size, DTYPES[dtype] if dtype else config.dtype, max_rows)
    found = [(job, job.run()) for job in tqdm(jobs, desc="Tuning", unit="shape", file=sys.stderr)]
    print(table(found))
    if all(outcome.is_saved for _, outcome in found):
        print(f"\nSaved in {tuning.path()}")
    else:
        sys.exit(1)  # with the reason in the log


def jobs_of(config: "ModelConfig", world_size: int, dtype: "torch.dtype", max_rows: int) -> list[Job]:
    """Returns the measurements to make for the ranks, small steps first."""
    from penstock.shard.layers.heads import OwnHeads

    length = min(config.context_length, ATTENDED)
    attentions = dict.fromkeys(
        Attention(len(own.heads), len(own.kv_heads), config.attention.head_dim, length)
        for own in OwnHeads.of_all(config.attention, world_size))
    jobs = [Job(f"attention, {phase}", num_rows, partial(attention.tune, phase, num_rows, dtype))
            for attention in attentions
            for phase, num_rows in (("decode", min(DECODED, max_rows)), ("prefill", min(max_rows, length)))]
    return jobs + [
        Job(linear.name, num_rows, partial(linear.tune, num_rows, dtype))
        for linear in linears_of(config, world_size)
        for num_rows in _linear_rows(min(max_rows, linear.max_rows or max_rows), dtype)]


def linears_of(config: "ModelConfig", world_size: int) -> list[Linear]:
    """Returns the linears of all ranks, of which some may have more than others."""
    return list(dict.fromkeys(
        linear for rank in range(world_size) for linear in _linears_of_rank(config, rank, world_size)))


def _linears_of_rank(config: "ModelConfig", rank: int, world_size: int) -> list[Linear]:
    from penstock.shard.communication.own_inputs import OwnInputs, inner_inputs
    from penstock.shard.layers.heads import OwnHeads

    attention, hidden, form = config.attention, config.hidden_size, config.attention.latent
    inner, own = inner_inputs(config.mlp.inner_size, rank, world_size), OwnHeads.of(attention, rank, world_size)
    heads = len(own.heads)

    def row_parallel(name: str, inputs: OwnInputs) -> list[Linear]:
        if len({*inputs.lengths}) == 1:
            return [Linear(name, hidden, sum(inputs.lengths), len(inputs.segments), world_size > 1)]
        return [Linear(name, hidden, length, is_float32=True) for length in inputs.lengths if length]

    inputs = [Linear("qkv_proj", (heads + 2 * len(own.kv_heads)) * attention.head_dim, hidden)] if form is None else [
        Linear("q_a, kv_a", form.query_rank + form.rank + form.turned_dim, hidden),
        Linear("q_b_proj", heads * (form.plain_dim + form.turned_dim), form.query_rank or hidden),
        Linear("kv_b_proj", heads * (form.plain_dim + form.value_dim), form.rank)]
    return [
        *inputs,
        *row_parallel("o_proj", own.outputs(attention, rank, world_size)),
        Linear("gate_up_proj", (1 + config.mlp.is_gated) * sum(inner.lengths), hidden),
        *row_parallel("down_proj", inner),
        Linear("lm_head", -(-config.vocab_size // world_size), hidden, is_float32=True, max_rows=MAX_HEAD_ROWS),
    ]


def table(found: list[tuple[Job, "Outcome"]]) -> str:
    """Returns a table of what won, and how much faster than the guess it is."""
    lines = [f"{'':20}{'tokens':>7}{'guess, us':>11}{'best, us':>10}{'faster':>8}  configuration"]
    for job, outcome in found:
        guess, best = outcome.default_seconds * 1e6, outcome.seconds * 1e6
        constants = " ".join(f"{name}={value}" for name, value in outcome.config.items())
        lines.append(f"{job.name:20}{job.num_rows:7}{guess:11.1f}{best:10.1f}{guess / best - 1:8.0%}  {constants}")
    return "\n".join(lines)


def _linear_rows(most: int, dtype: "torch.dtype") -> list[int]:
    """Returns the numbers of rows to measure linears with, up to the first that is no less than `most`. Outside
    deterministic mode torch multiplies float32, and many rows."""
    import torch

    from penstock.kernels import dispatch
    from penstock.kernels.linear import any_order

    if dispatch.is_deterministic():
        return _row_counts(most)
    return [] if dtype == torch.float32 else list(any_order.ROWS[:bisect.bisect_left(any_order.ROWS, most) + 1])


def _row_counts(most: int) -> list[int]:
    """Returns the powers of two up to the first that is no less than `most`: a configuration serves all counts since
    the last."""
    counts = [MIN_ROWS]
    while counts[-1] < most:
        counts.append(2 * counts[-1])
    return counts


if __name__ == "__main__":
    main()
