"""A Llama in one file, to be read beside the paper (Touvron et al. 2023): every op that Penstock runs for a token.

    python examples/llama.py deploy/demo_model/checkpoint "import os"

The shards compute the same ops. `penstock/shard/layers` adds several ranks, quantised weights, adapters, and fused
forms with equal bits; `penstock/shard/models` adds the other families. A test compares the two bit by bit. In the
shapes, T counts tokens, C channels, D the channels of a head, and V the words of the vocabulary.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from penstock.kernels.activation import Activation, activate_gate
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.linear import linear, pack, weight_rows
from penstock.kernels.paged_attention import allocate_cache, paged_attention
from penstock.kernels.rms_norm import rms_norm
from penstock.kernels.rope_kv_write import rope_kv_write

BLOCK_SIZE = 16
SEGMENTS = 8
"""Sums over the inputs of a linear that several ranks share are made in 8 segments, so that 1 to 8 ranks have equal
bits."""


class Llama:
    """The weights of a checkpoint in the layout of the kernels, and a KV cache for one sequence."""

    def __init__(self, directory: Path, num_blocks: int = 64) -> None:
        self.config = config = json.loads((directory / "config.json").read_text())
        tensors = load_file(directory / "model.safetensors")
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim, self.eps = config["head_dim"], config["rms_norm_eps"]
        self.embedding = pack(tensors["model.embed_tokens.weight"])  # the head's, too: they are tied
        self.norm = tensors["model.norm.weight"]
        self.blocks = [Block(self, tensors, f"model.layers.{index}") for index in range(config["num_hidden_layers"])]
        self.caches = [allocate_cache(num_blocks, block_size=BLOCK_SIZE, num_kv_heads=self.kv_heads,
                                      head_dim=self.head_dim, dtype=self.norm.dtype, device="cpu")
                       for _ in self.blocks]
        # A server's sequences have blocks from anywhere in the pool; this one has them in order.
        self.table = torch.arange(num_blocks, dtype=torch.int32)[None]
        theta = config["rope_parameters"]["rope_theta"]
        self.cos, self.sin = rotary_angles(num_blocks * BLOCK_SIZE, self.head_dim, theta)

    def logits(self, ids: list[int], start: int) -> Tensor:
        """Returns the logits of the token after `ids`, float32 [V]; `start` tokens of the sequence are in the cache."""
        positions = torch.arange(start, start + len(ids))
        x = weight_rows(self.embedding, torch.tensor(ids))
        delta = torch.zeros_like(x)
        for block, cache in zip(self.blocks, self.caches, strict=True):
            x, delta = block(x, delta, positions, cache)
        normed, _ = rms_norm(x[-1:], self.norm, self.eps, delta[-1:])
        return linear(normed, self.embedding, out_dtype=torch.float32)[0]


class Block:
    """Attention, then a feed-forward network. Each reads the residual stream through a norm and is added to it."""

    def __init__(self, model: Llama, tensors: dict[str, Tensor], name: str) -> None:
        def stacked(*linears: str) -> Tensor:
            return torch.cat([tensors[f"{name}.{linear}.weight"] for linear in linears])

        self.model = model
        self.attention_norm = tensors[f"{name}.input_layernorm.weight"]
        self.qkv = pack(stacked("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"))
        self.output = pack(stacked("self_attn.o_proj"), SEGMENTS)
        self.feed_forward_norm = tensors[f"{name}.post_attention_layernorm.weight"]
        self.gate_up = pack(stacked("mlp.gate_proj", "mlp.up_proj"))
        self.down = pack(stacked("mlp.down_proj"), SEGMENTS)

    def __call__(self, x: Tensor, delta: Tensor, positions: Tensor, cache: KvCache) -> tuple[Tensor, Tensor]:
        """Returns the residual stream [T, C] and the sum that is still to be added to it, which the next norm adds."""
        normed, x = rms_norm(x, self.attention_norm, self.model.eps, delta)
        normed, x = rms_norm(x, self.feed_forward_norm, self.model.eps, self.attention(normed, positions, cache))
        return x, linear(activate_gate(linear(normed, self.gate_up), Activation.SILU), self.down)

    def attention(self, x: Tensor, positions: Tensor, cache: KvCache) -> Tensor:
        """Lets each token read those before it and itself, from the blocks of the cache: [T, C] of x [T, C]."""
        model = self.model
        heads = linear(x, self.qkv).view(len(x), -1, model.head_dim)
        q, k, v = torch.split(heads, [model.heads, model.kv_heads, model.kv_heads], dim=1)
        q = rope_kv_write(q, k, v, model.cos, model.sin, positions, False, cache, slot_mapping=positions)
        starts, counts = positions[:1].int(), torch.tensor([len(x)], dtype=torch.int32)
        attended = paged_attention(q, cache, model.table, starts, counts, scale=model.head_dim ** -0.5)
        return linear(attended.flatten(1), self.output)


def rotary_angles(length: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Returns the cosines and sines of each position's angles, float32 [length, D / 2] (Su et al. 2021)."""
    frequencies = 1 / theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(length).float(), frequencies).double()
    return angles.cos().float(), angles.sin().float()


def generate(model: Llama, ids: list[int], number: int) -> list[int]:
    """Returns the likeliest tokens after `ids`, one after the other: the prompt in one step, then a step a token."""
    tokens, start = list(ids), 0
    for _ in range(number):
        logits = model.logits(tokens[start:], start)
        start = len(tokens)
        tokens.append(int(logits.argmax()))
    return tokens[len(ids):]


def main(directory: str, prompt: str) -> None:
    tokenizer = Tokenizer.from_file(f"{directory}/tokenizer.json")
    print(prompt + tokenizer.decode(generate(Llama(Path(directory)), tokenizer.encode(prompt).ids, 40)))


if __name__ == "__main__":
    main(*sys.argv[1:])
