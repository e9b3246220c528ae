"""How fast the linear layer is: all matrices of a Llama once, against the rows of a step, beside torch's and, in
`bench/kernels/coded.py`, over coded weights.

`penstock bench kernels linear` prints a row for each number of rows. Every matrix has memory of its own, so weights
come from memory as in a decode step. The contenders take turns, so other work on the machine shows in all of them; all
but the best time are medians.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import click
import torch
from torch import Tensor
from torch.nn import functional

from penstock.bench.kernels.coded import CODED, coded
from penstock.kernels import dispatch
from penstock.kernels.linear import PackedWeight, linear, pack

HEADER = "rows  kernels       ms     best  tokens/s  GFLOP/s   GB/s"
MOST_HEAD_ROWS = 64  # more rows are a prompt, of which only the last one needs logits
Run = Callable[[Tensor], object]


class Shapes:
    """A decoder's matrices, as [N, K] and the segments of K."""

    def __init__(self, hidden: int, layers: int, heads: int, kv_heads: int, head_size: int, inner: int, vocab: int):
        self.layers = [
            ((heads + 2 * kv_heads) * head_size, hidden, 1),
            (hidden, heads * head_size, 8),
            (2 * inner, hidden, 1),
            (hidden, inner, 8),
        ] * layers
        self.head = (vocab, hidden, 1)

    @property
    def num_weights(self) -> int:
        return sum(n * k for n, k, _ in (*self.layers, self.head))

    def flops(self, rows: int) -> int:
        layers = sum(n * k for n, k, _ in self.layers)
        return 2 * (rows * layers + head_rows(rows) * self.head[0] * self.head[1])


def head_rows(rows: int) -> int:
    return rows if rows <= MOST_HEAD_ROWS else 1


def own(weight: Tensor, segments: int, is_head: bool) -> Run:
    packed: PackedWeight = pack(weight, segments)
    out_dtype = torch.float32 if is_head else weight.dtype
    return lambda x: linear(x, packed, out_dtype=out_dtype)


def plain(weight: Tensor, segments: int, is_head: bool) -> Run:
    return lambda x: functional.linear(x, weight)


def prepacked(weight: Tensor, segments: int, is_head: bool) -> Run:
    """Uses oneDNN's own layout, which torch has for its compiler."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


CONTENDERS = {"own": own, "torch": plain, "onednn": prepacked}


class Stack:
    """All matrices of a model, as one contender has them."""

    def __init__(self, shapes: Shapes, kind: str, dtype: torch.dtype) -> None:
        self.runs: list[Run] = []
        self.num_bytes = 0
        for n, k, segments in (*shapes.layers, shapes.head):
            is_head = (n, k, segments) == shapes.head
            if kind in CODED:
                packed = coded(kind, n, k, segments, is_head)
                self.num_bytes += sum(tensor.nbytes for tensor in packed.data)
                self.runs.append(partial(linear, packed=packed, out_dtype=torch.float32 if is_head else dtype))
            else:
                weight = torch.empty(n, k, dtype=dtype).uniform_(-(k**-0.5), k**-0.5)
                self.num_bytes += weight.nbytes
                self.runs.append(CONTENDERS[kind](weight, segments, is_head))


def inputs(shapes: Shapes, rows: int, dtype: torch.dtype) -> list[Tensor]:
    layers = [torch.randn(rows, k).to(dtype) for _, k, _ in shapes.layers[:4]]
    return layers * (len(shapes.layers) // 4) + [torch.randn(head_rows(rows), shapes.head[1]).to(dtype)]


def seconds(runs: Sequence[Run], xs: Sequence[Tensor]) -> float:
    start = time.perf_counter()
    for run, x in zip(runs, xs, strict=True):
        run(x)
    return time.perf_counter() - start


@click.command(help=__doc__)
@click.option("--rows", default="1,4,16,32,64,512", show_default=True, help="Of steps.")
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=9, show_default=True, help="How often the contenders take turns.")
@click.option("--contenders", default="own,torch,onednn", show_default=True,
              help=f"Of {', '.join((*CONTENDERS, *CODED))}.")
@click.option("--dtype", default="bfloat16", show_default=True, type=click.Choice(["bfloat16", "float16", "float32"]))
@click.option("--hidden", default=960, show_default=True)
@click.option("--layers", default=32, show_default=True)
@click.option("--heads", default=15, show_default=True)
@click.option("--kv-heads", default=5, show_default=True)
@click.option("--head-size", default=64, show_default=True)
@click.option("--inner", default=2560, show_default=True)
@click.option("--vocab", default=49152, show_default=True)
def main(rows: str, threads: int, rounds: int, contenders: str, dtype: str, **shape: int) -> None:
    torch.set_num_threads(threads)
    dispatch.set_threads(threads)
    shapes, stored, kinds = Shapes(**shape), getattr(torch, dtype), contenders.split(",")
    stacks = {kind: Stack(shapes, kind, stored) for kind in kinds}
    print(f"{dispatch.path()}, {dtype}, {threads} threads, {shapes.num_weights / 1e6:.0f} million weights")
    print(HEADER)
    for number in map(int, rows.split(",")):
        compare(shapes, stacks, number, stored, rounds)


def compare(
    shapes: Shapes, stacks: dict[str, Stack], rows: int, dtype: torch.dtype, rounds: int
) -> None:
    """Lets the contenders take turns, and prints a line for each."""
    xs = inputs(shapes, rows, dtype)
    times: dict[str, list[float]] = {kind: [] for kind in stacks}
    for _ in range(rounds):
        for kind, each in stacks.items():
            times[kind].append(seconds(each.runs, xs))
    for kind, own_times in times.items():
        median = statistics.median(own_times)
        gflops, gigabytes = shapes.flops(rows) / 1e9, stacks[kind].num_bytes / 1e9
        print(f"{rows:4}  {kind:8} {1e3 * median:7.2f}  {1e3 * min(own_times):7.2f} {rows / median:9.1f} "
              f"{gflops / median:8.0f} {gigabytes / median:6.1f}", flush=True)


if __name__ == "__main__":
    main()
