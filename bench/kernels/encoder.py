"""How fast all blocks of an encoder are, in one call and op by op, beside torch's: `penstock bench kernels encoder`.

The contenders take turns, so other work on the machine shows in all of them; the table has medians (and minima). Texts
are of one length, so torch's have no padding. The sizes are those of all-MiniLM-L6-v2.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import click
import torch
from torch import Tensor
from torch.nn import functional

from penstock.kernels import dispatch
from penstock.kernels.activation import Activation, activate
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.full_attention import full_attention
from penstock.kernels.fused.encoder import EncoderBlocks, EncoderLayer, LayerNorm
from penstock.kernels.layer_norm import layer_norm
from penstock.kernels.linear import linear, pack

EPS = 1e-12
SIZES = ((1, 20), (1, 128), (16, 20), (16, 128), (8, 512))
"""How many texts there are, and how many tokens each has."""


@dataclass(frozen=True)
class Weights:
    """Weights and biases of a block's four linears, and the weight of both norms."""

    linears: tuple[tuple[Tensor, Tensor], ...]
    norm: Tensor

    @classmethod
    def random(cls, width: int, inner: int) -> "Weights":
        shapes = ((3 * width, width), (width, width), (inner, width), (width, inner))
        return cls(tuple((torch.randn(n, k) * k**-0.5, torch.randn(n)) for n, k in shapes), torch.ones(width))


def packed(weights: Weights, heads: int, stored: torch.dtype) -> EncoderLayer:
    (qkv, output, up, down) = ((pack(weight.to(stored), segments), bias) for (weight, bias), segments in
                               zip(weights.linears, (1, 8, 1, 8), strict=True))
    norm, dim = LayerNorm(weights.norm[None], None, EPS), len(weights.norm) // heads
    return EncoderLayer(
        norm, *qkv, None, *output, norm, *up, *down, num_heads=heads, num_kv_heads=heads, head_dim=dim,
        scale=dim**-0.5, window=0, bias=None, activation=Activation.GELU, is_gated=False, is_post_norm=True)


def by_ops(layers: list[EncoderLayer], x: Tensor, metadata: AttentionMetadata) -> Tensor:
    for layer in layers:
        heads = linear(x, layer.qkv, layer.qkv_bias).view(len(x), 3 * layer.num_heads, layer.head_dim)
        q, k, v = torch.split(heads, [layer.num_heads] * 3, 1)
        attended = full_attention(q, k, v, metadata.counts, scale=layer.scale)
        norm = layer.feed_forward_norm
        x, _ = layer_norm(linear(attended.flatten(1), layer.output, layer.output_bias), norm.weight, None, EPS, x)
        inner = activate(linear(x, layer.gate_up, layer.gate_up_bias), layer.activation)
        x, _ = layer_norm(linear(inner, layer.down, layer.down_bias), norm.weight, None, EPS, x)
    return x


def by_torch(blocks: list[Weights], heads: int, x: Tensor) -> Tensor:
    """Computes texts of one length, x [texts, tokens, width]."""
    for block in blocks:
        qkv, output, up, down = block.linears
        parts = functional.linear(x, *qkv).view(*x.shape[:2], 3 * heads, -1).transpose(1, 2)
        q, k, v = torch.split(parts, heads, 1)
        attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = functional.layer_norm(x + functional.linear(attended, *output), block.norm.shape, block.norm, None, EPS)
        inner = functional.gelu(functional.linear(x, *up))
        x = functional.layer_norm(x + functional.linear(inner, *down), block.norm.shape, block.norm, None, EPS)
    return x


def run_in_one(blocks: EncoderBlocks, x: Tensor, metadata: AttentionMetadata) -> Tensor:
    return blocks(x.clone(), metadata)[0]


def metadata_of(texts: int, tokens: int) -> AttentionMetadata:
    positions, counts = torch.arange(tokens).repeat(texts), torch.full((texts,), tokens, dtype=torch.int32)
    tables = torch.empty(texts, 0, dtype=torch.int32)
    return AttentionMetadata(positions, torch.zeros_like(positions), tables, torch.zeros_like(counts), counts)


def take_turns(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Returns the milliseconds of each contender's calls. One begins when the threads of the one before sleep."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            time.sleep(0.03)
            run()
            start = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - start))
    return times


@click.command(help=__doc__)
@click.option("--threads", default=2, show_default=True, help="Threads that each contender has.")
@click.option("--rounds", default=15, show_default=True, help="How often they take turns.")
@click.option("--stored", default="float32", show_default=True, type=click.Choice(["float32", "bfloat16", "float16"]),
              help="How our weights are stored; all compute in float32.")
@click.option("--layers", default=6, show_default=True)
@click.option("--hidden", default=384, show_default=True)
@click.option("--heads", default=12, show_default=True)
@click.option("--inner", default=1536, show_default=True)
def main(threads: int, rounds: int, stored: str, layers: int, hidden: int, heads: int, inner: int) -> None:
    dispatch.set_threads(threads)
    torch.set_num_threads(threads)
    blocks = [Weights.random(hidden, inner) for _ in range(layers)]
    own = [packed(block, heads, getattr(torch, stored)) for block in blocks]
    in_one = EncoderBlocks(own)
    print(f"{dispatch.path()}, {threads} threads, weights in {stored}; milliseconds for all blocks\n")
    print("| texts | tokens of each | in one call | op by op | torch | torch / one call |")
    print("|---|---|---|---|---|---|")
    for texts, tokens in SIZES:
        x, metadata = torch.randn(texts * tokens, hidden), metadata_of(texts, tokens)
        contenders: dict[str, Callable[[], object]] = {
            "own": partial(run_in_one, in_one, x, metadata), "ops": partial(by_ops, own, x, metadata),
            "torch": partial(by_torch, blocks, heads, x.view(texts, tokens, hidden))}
        with torch.inference_mode():
            times = take_turns(contenders, rounds)
        medians = {name: statistics.median(some) for name, some in times.items()}
        cells = " | ".join(f"{medians[name]:.2f} ({min(some):.2f})" for name, some in times.items())
        print(f"| {texts} | {tokens} | {cells} | {medians['torch'] / medians['own']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
