"""The compiled attention beside torch's, and beside torch's sum of the same bytes: `penstock bench kernels attention`.

Each case and its peers take turns in one process, so that a noisy machine is noisy to all; the table has medians (and
minima), and for the bandwidth the median of the ratios of neighbours. The variable KERNELS_PATH names the instruction
path.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import click
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from penstock.kernels import dispatch
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import allocate_cache, block_bytes, paged_attention

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 15, 5, 64, 16
COLD_BYTES = 96 << 20  # of all layers, which take turns: more than the processor's cache

Calls = list[Callable[[], Tensor]]


@dataclass(frozen=True)
class Case:
    """Sequences of `context` tokens, of which the last `count` are queries."""

    name: str
    sequences: int
    context: int
    count: int
    is_cold: bool = False
    dtype: torch.dtype = torch.bfloat16
    cache_dtype: torch.dtype | None = None  # None: the same

    @property
    def kv_dtype(self) -> torch.dtype:
        return self.cache_dtype or self.dtype

    @property
    def layer_bytes(self) -> int:
        return self.sequences * self.context // BLOCK_SIZE * block_bytes(
            block_size=BLOCK_SIZE, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, dtype=self.kv_dtype)

    @property
    def num_layers(self) -> int:
        return -(-COLD_BYTES // self.layer_bytes) if self.is_cold else 1


CASES = [
    Case("decode, 32 sequences × 192, cold", 32, 192, 1, is_cold=True),
    Case("decode, 32 sequences × 192, cold, int8", 32, 192, 1, is_cold=True, cache_dtype=torch.int8),
    Case("decode, 32 sequences × 192, in cache", 32, 192, 1),
    Case("decode, 32 sequences × 192, in cache, int8", 32, 192, 1, cache_dtype=torch.int8),
    Case("decode, 32 sequences × 192, in cache, float32", 32, 192, 1, dtype=torch.float32),
    Case("decode, 1 sequence × 128, in cache", 1, 128, 1),
    Case("decode, 1 sequence × 192, in cache", 1, 192, 1),
    Case("decode, 1 sequence × 8192, cold", 1, 8192, 1, is_cold=True),
    Case("decode, 1 sequence × 8192, cold, int8", 1, 8192, 1, is_cold=True, cache_dtype=torch.int8),
    Case("prefill of 512", 1, 512, 512),
    Case("prefill of 512, float32", 1, 512, 512, dtype=torch.float32),
    Case("prefill of 512 behind 3584", 1, 4096, 512),
    Case("prefill of 512 behind 3584, int8", 1, 4096, 512, cache_dtype=torch.int8),
]


def layers(case: Case) -> list[KvCache]:
    """Returns caches full of K and V. A sequence's blocks lie one after the other, as after a fresh start."""
    made = []
    num_blocks = case.sequences * case.context // BLOCK_SIZE
    for _ in range(case.num_layers):
        cache = allocate_cache(num_blocks, block_size=BLOCK_SIZE, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM,
                               dtype=case.kv_dtype, device="cpu")
        k, v = torch.randn(2, num_blocks * BLOCK_SIZE, KV_HEADS, HEAD_DIM).to(case.dtype)
        kv_write(k, v, cache, torch.arange(len(k)))
        made.append(cache)
    return made


def ours(case: Case, caches: list[KvCache]) -> Calls:
    tables = torch.arange(caches[0].num_blocks, dtype=torch.int32).view(case.sequences, -1)
    starts = torch.full((case.sequences,), case.context - case.count, dtype=torch.int32)
    counts = torch.full_like(starts, case.count)
    q = torch.randn(case.sequences * case.count, HEADS, HEAD_DIM).to(case.dtype)
    return [partial(paged_attention, q, cache, tables, starts, counts, scale=HEAD_DIM**-0.5) for cache in caches]


def torch_sum(caches: list[KvCache]) -> Calls:
    """Returns calls that read the same bytes and do next to nothing with them."""
    return [data.sum for data in (cache.data.view(torch.float32) for cache in caches)]


def torch_attention(case: Case) -> Calls:
    """Returns torch's calls on K and V that need no gathering, for a few layers: it is slow, a warm cache helps it."""
    q = torch.randn(case.sequences, HEADS, case.count, HEAD_DIM).to(case.dtype)
    shape = (2, case.sequences, KV_HEADS, case.context, HEAD_DIM)
    mask = torch.ones(case.count, case.context, dtype=torch.bool).tril(case.context - case.count)
    form: dict[str, Any] = {"attn_mask": None if case.count == 1 else mask}
    if case.count == case.context:
        form = {"is_causal": True}
    pairs = [torch.randn(shape).to(case.dtype) for _ in range(min(3, case.num_layers))]
    return [partial(scaled_dot_product_attention, q, k, v, enable_gqa=True, **form) for k, v in pairs]


def take_turns(peers: list[Calls], rounds: int) -> list[list[float]]:
    """Returns each peer's times, µs a call, one for each round.

    A peer begins when the threads of the one before have gone to sleep: torch's spin for some 15 ms. Its first calls
    wake its own, and do not count.
    """
    times: list[list[float]] = [[] for _ in peers]
    for _ in range(rounds):
        for calls, own in zip(peers, times, strict=True):
            time.sleep(0.03)
            for call in calls[-3:]:
                call()
            repeats = max(1, 10 // len(calls))
            begin = time.perf_counter()
            for _ in range(repeats):
                for call in calls:
                    call()
            own.append((time.perf_counter() - begin) / len(calls) / repeats * 1e6)
    return times


@click.command(help=__doc__)
@click.option("--threads", default=2, show_default=True, envvar="THREADS", help="Threads that each contender has.")
@click.option("--rounds", default=15, show_default=True, envvar="ROUNDS", help="How often they take turns.")
def main(threads: int, rounds: int) -> None:
    torch.set_num_threads(threads)
    dispatch.set_threads(threads)
    print(f"{dispatch.path()}, {threads} threads; {HEADS} query heads, {KV_HEADS} KV heads of {HEAD_DIM}; µs a layer\n")
    print("| | median (min) | torch's attention | GB/s | part of the bandwidth of torch's sum |")
    print("|---|---|---|---|---|")
    for case in CASES:
        caches = layers(case)
        own, reading, theirs = take_turns(
            [ours(case, caches), torch_sum(caches), torch_attention(case)], rounds)
        part = median(sum_time / time for sum_time, time in zip(reading, own, strict=True))
        reads = f"{case.layer_bytes / median(own) / 1e3:.1f} | {part:.0%}" if case.count == 1 else "|"
        times = " | ".join(f"{median(some):.0f} ({min(some):.0f})" for some in (own, theirs))
        print(f"| {case.name} | {times} | {reads} |", flush=True)


if __name__ == "__main__":
    main()
