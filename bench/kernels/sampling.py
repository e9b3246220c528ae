"""How many milliseconds sampling takes, by the compiled kernel and the reference: `penstock bench kernels sampling`.

Logits are normally distributed: with a deviation of 1 nearly every token counts, with 4 a few hundred do.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import click
import torch

from penstock.bench.kernels.sampling_cases import CASES, parameters
from penstock.kernels import native
from penstock.kernels.sample import Biases, History, cpu, reference


def milliseconds(call: Callable[[], object], seconds: float) -> float:
    """Returns the median of as many calls as fit, three at least."""
    call()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


@click.command(help=__doc__)
@click.option("--rows", default=[1, 32], multiple=True, show_default=True)
@click.option("--vocabulary", default=49152, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--history", default=500, show_default=True, help="Tokens that the penalties of a row read.")
@click.option("--seconds", default=0.5, show_default=True, help="For each figure.")
def main(rows: tuple[int, ...], vocabulary: int, threads: int, history: int, seconds: float) -> None:
    torch.set_num_threads(threads)
    native.library.set_threads(threads, None)
    print(f"{vocabulary} tokens, {threads} threads, {native.library.path}; milliseconds, medians")
    print(f"{'rows':>4} {'deviation':>9}  {'':40} {'cpu':>9} {'reference':>10}")
    for num_rows in rows:
        for deviation in (1, 4):
            generator = torch.Generator().manual_seed(1)
            logits = deviation * torch.randn(num_rows, vocabulary, generator=generator)
            ids = torch.randint(0, vocabulary, (num_rows * history,), generator=generator)
            offsets = torch.arange(0, num_rows * history + 1, history)
            biases = Biases(torch.empty(0, dtype=torch.int64), torch.empty(0), torch.zeros_like(offsets))
            masks = torch.full((1, -(-vocabulary // 32)), 0x55555555, dtype=torch.int32)
            for name, case in CASES.items():
                arguments = logits, parameters([case] * num_rows), History(ids, offsets), biases, masks, 0
                ours = milliseconds(partial(cpu.sample, *arguments), seconds)
                theirs = milliseconds(partial(reference.sample, *arguments), seconds)
                print(f"{num_rows:4} {deviation:9}  {name:40} {ours:9.3f} {theirs:10.1f}")


if __name__ == "__main__":
    main()
