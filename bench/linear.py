"""How fast the linear layer is: all matrices of a Llama once, against the rows of a step, beside torch's.

`python -m penstock.bench.linear` prints a row for each number of rows. Every matrix has memory of its own, so weights
come from memory as in a decode step. The contenders take turns, so other work on the machine shows in all of them; all
but the best time are medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from penstock.kernels import dispatch
from penstock.kernels.linear import PackedWeight, linear, pack

HEADER = "rows  kernels      ms     best  tokens/s  GFLOP/s   GB/s"
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
    """oneDNN's own layout; torch has it for its compiler."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


CONTENDERS = {"own": own, "torch": plain, "onednn": prepacked}


def stack(shapes: Shapes, kind: str, dtype: torch.dtype) -> list[Run]:
    runs = []
    for n, k, segments in (*shapes.layers, shapes.head):
        weight = torch.empty(n, k, dtype=dtype).uniform_(-(k**-0.5), k**-0.5)
        runs.append(CONTENDERS[kind](weight, segments, (n, k, segments) == shapes.head))
    return runs


def inputs(shapes: Shapes, rows: int, dtype: torch.dtype) -> list[Tensor]:
    layers = [torch.randn(rows, k).to(dtype) for _, k, _ in shapes.layers[:4]]
    return layers * (len(shapes.layers) // 4) + [torch.randn(head_rows(rows), shapes.head[1]).to(dtype)]


def seconds(runs: Sequence[Run], xs: Sequence[Tensor]) -> float:
    start = time.perf_counter()
    for run, x in zip(runs, xs, strict=True):
        run(x)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default="1,4,16,32,64,512", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--contenders", default="own,torch,onednn", help="default: %(default)s")
    parser.add_argument("--dtype", default="bfloat16", help="default: %(default)s")
    for name, default in (("hidden", 960), ("layers", 32), ("heads", 15), ("kv-heads", 5), ("head-size", 64),
                          ("inner", 2560), ("vocab", 49152)):
        parser.add_argument(f"--{name}", type=int, default=default, help="default: %(default)s")
    options = vars(parser.parse_args())
    row_counts = [int(rows) for rows in options.pop("rows").split(",")]
    kinds = options.pop("contenders").split(",")
    threads, rounds, dtype = options.pop("threads"), options.pop("rounds"), getattr(torch, options.pop("dtype"))

    torch.set_num_threads(threads)
    dispatch.set_threads(threads)
    shapes = Shapes(**options)
    stacks = {kind: stack(shapes, kind, dtype) for kind in kinds}
    print(f"{dispatch.path()}, {dtype}, {threads} threads, {shapes.num_weights / 1e6:.0f} million weights")
    print(HEADER)
    for rows in row_counts:
        xs = inputs(shapes, rows, dtype)
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind in kinds:
                times[kind].append(seconds(stacks[kind], xs))
        for kind in kinds:
            median = statistics.median(times[kind])
            gflops, gigabytes = shapes.flops(rows) / 1e9, shapes.num_weights * dtype.itemsize / 1e9
            print(f"{rows:4}  {kind:7} {1e3 * median:7.2f}  {1e3 * min(times[kind]):7.2f} {rows / median:9.1f} "
                  f"{gflops / median:8.0f} {gigabytes / median:6.1f}", flush=True)


if __name__ == "__main__":
    main()
