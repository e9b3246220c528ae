"""How much is measured: the model and the sizes of the real thing, and small ones that show that the benchmark runs."""

from dataclasses import dataclass, replace
from typing import Any

import torch

LLAMA_8B: dict[str, Any] = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 14336, "vocab_size": 128256, "rope_theta": 5e5, "max_position_embeddings": 40960}
TINY: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "intermediate_size": 96, "vocab_size": 160, "rope_theta": 1e4, "max_position_embeddings": 1024}
SAMPLED = ("temperature 0.8, top-p 0.95", "greedy", "plain", "top-k 50", "typical-p 0.95", "min-p 0.05")
"""Names of sampling_cases.CASES, the most wanted first."""
VLLM = "vLLM"
"""The record of vLLM's server, under as many streams as the first of `served_streams`."""


@dataclass(frozen=True)
class Scale:
    """Lengths are in tokens, times in seconds."""

    name: str
    model: dict[str, Any]                # keys of config.json
    dtype: torch.dtype                   # of the model
    copy_bytes: int
    matmul_size: int
    repeats: int                         # timed calls, or replays, of a kernel
    attention: tuple[tuple[int, int, int], ...]    # sequences, context, queries of each
    linear_rows: tuple[int, ...]
    batches: tuple[int, ...]             # of decode steps
    prompt: int                          # behind which is decoded
    new: int                             # decode steps that are timed
    warm_up: int                         # decode steps before
    prefills: tuple[int, ...]
    step_tokens: int                     # a step's budget of prompt tokens
    deterministic_batches: tuple[int, ...]
    deterministic_prefill: int
    graphless_batches: tuple[int, ...]
    generate_batches: tuple[int, ...]    # of transformers' generate
    continuous_batches: tuple[int, ...]  # of its continuous batching
    scaled_attention: tuple[tuple[int, int, int], ...]      # as `attention`, over caches of 8 bits
    samplings: int                       # of SAMPLED that sampling is timed in
    sampled_batches: tuple[int, ...]     # of decode steps that sample with cutoffs
    mixed: tuple[tuple[int, int], ...]   # sequences that decode, and tokens of a prompt beside them
    cached_batches: tuple[int, ...]      # of decode steps over caches of 8 bits
    profiled_batches: tuple[int, ...]    # of decode steps that are broken down by kernel
    served_streams: tuple[int, ...]      # that the server answers at a time
    profiled: int = 8                    # steps of each

    @property
    def vocab_size(self) -> int:
        return int(self.model["vocab_size"])

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


FULL = Scale(
    name="full", model=LLAMA_8B, dtype=torch.bfloat16, copy_bytes=4 << 30, matmul_size=8192, repeats=30,
    attention=((128, 4096, 1), (1, 4096, 1), (8, 1024, 1), (32, 1024, 1), (256, 1024, 1), (1, 32768, 1),
               (1, 4096, 4096), (4, 1024, 1024), (1, 32768, 4096)),
    linear_rows=(1, 8, 128, 4096), batches=(1, 8, 128, 64, 256), prompt=1024, new=64, warm_up=8,
    prefills=(4096, 512, 32768), step_tokens=4096, deterministic_batches=(1, 8, 128), deterministic_prefill=4096,
    graphless_batches=(1, 8), generate_batches=(8, 1, 32), continuous_batches=(64, 128),
    scaled_attention=((128, 4096, 1), (1, 4096, 4096)), samplings=len(SAMPLED), sampled_batches=(128, 8),
    mixed=((64, 256), (64, 1024), (1, 512)), cached_batches=(128, 8), profiled_batches=(128, 8, 1),
    served_streams=(64, 128, 8))
QUICK = replace(
    FULL, name="quick", repeats=10, attention=FULL.attention[:3] + FULL.attention[6:7],
    linear_rows=(8, 4096), batches=(1, 8, 128, 64), new=32, prefills=(4096,), deterministic_batches=(8,),
    graphless_batches=(8,), generate_batches=(8,), continuous_batches=(64,), scaled_attention=FULL.scaled_attention[:1],
    sampled_batches=(128,), mixed=FULL.mixed[:1], cached_batches=(128,), profiled_batches=(128, 1),
    served_streams=(64,))
SMALLEST = Scale(
    name="tiny", model=TINY, dtype=torch.float32, copy_bytes=1 << 12, matmul_size=32, repeats=1,
    attention=((3, 40, 1), (1, 40, 20)),
    linear_rows=(3,), batches=(1, 2), prompt=20, new=3, warm_up=1, prefills=(20,), step_tokens=12,
    deterministic_batches=(2,), deterministic_prefill=20, graphless_batches=(1,), generate_batches=(2,),
    continuous_batches=(2,), scaled_attention=((2, 20, 1),), samplings=1, sampled_batches=(2,), mixed=((1, 8),),
    cached_batches=(2,), profiled_batches=(2,), served_streams=(2,), profiled=2)
SCALES = {scale.name: scale for scale in (FULL, QUICK, SMALLEST)}


def sample_name(case: str, rows: int) -> str:
    return f"sample {case}, {rows} rows"


def mixed_name(batch: int, prompt: int, chunk: int) -> str:
    return f"mixed, {batch} × {prompt} and a chunk of {chunk}"


def served_name(scale: Scale, streams: int) -> str:
    return f"serve {streams}, {scale.prompt} + {scale.new} tokens"


def attention_name(sequences: int, length: int, count: int) -> str:
    if count == 1:
        return f"decode attention, {sequences} × {length}"
    return f"attention, {sequences} × {count} tokens" + f" behind {length - count}" * (length > count)
