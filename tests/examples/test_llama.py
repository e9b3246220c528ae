"""The Llama in one file computes the bits of the shards' decoder, in a prompt and token by token."""

import runpy
import subprocess
import sys

import pytest
import torch

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.paged_attention import allocate_cache
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from tests.paths import ROOT

CHECKPOINT = ROOT / "deploy/demo_model/checkpoint"
BLOCK_SIZE = 16
IDS = list(range(20, 57))


def logits_of_decoder(steps: list[list[int]]) -> list[torch.Tensor]:
    """Returns the decoder's logits after each step of one sequence, whose blocks lie anywhere in the pool."""
    decoder = Decoder.load(CHECKPOINT, None, Group())
    layout = decoder.facts.layout
    caches = [allocate_cache(8, block_size=BLOCK_SIZE, num_kv_heads=layout.num_kv_heads, head_dim=layout.head_dim,
                             dtype=decoder.dtype, device="cpu") for _ in range(layout.num_layers)]
    table = torch.tensor([[5, 2, 7, 0]], dtype=torch.int32)
    found, start = [], 0
    for ids in steps:
        positions = torch.arange(start, start + len(ids))
        slots = table[0][positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE
        metadata = AttentionMetadata(positions, slots, table, torch.tensor([start], dtype=torch.int32),
                                     torch.tensor([len(ids)], dtype=torch.int32))
        logits = decoder.logits(decoder.forward(torch.tensor(ids), metadata, caches), torch.tensor([len(ids) - 1]))
        assert logits is not None
        found.append(logits[0])
        start += len(ids)
    return found


def test_one_file_has_the_bits_of_the_decoder():
    llama = runpy.run_path(str(ROOT / "examples/llama.py"))
    model = llama["Llama"](CHECKPOINT)
    steps = [IDS[:30], *([token] for token in IDS[30:])]
    starts = [0, *range(30, 37)]
    own = [model.logits(ids, start) for ids, start in zip(steps, starts, strict=True)]
    theirs = logits_of_decoder(steps)
    assert len(own) == 8
    assert all(torch.equal(one, other) for one, other in zip(own, theirs, strict=True))


@pytest.mark.slow
def test_it_runs_from_the_command_line():
    run = subprocess.run([sys.executable, "examples/llama.py", "deploy/demo_model/checkpoint", "import os"], cwd=ROOT,
                         capture_output=True, text=True, check=True)
    assert run.stdout.startswith("import os\nimport ")
