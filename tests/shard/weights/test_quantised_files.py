"""Checkpoints that the formats' own libraries made: the weights that these say they have, and the logits that follow.

quantised_files/make.py makes them.
"""

import json
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from penstock.kernels.linear import linear
from penstock.shard.communication.distributed import Group, connect
from penstock.shard.communication.own_inputs import OwnInputs
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.model_options import AS_STORED, ModelOptions
from penstock.shard.models.reading import read_model_config
from penstock.shard.models.rounding_methods import ROUNDINGS
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.rank_weights import RankWeights
from penstock.shard.weights.stored import CheckpointError
from tests.shard.spawned_ranks import Results, run_ranks
from tests.shard.weights.library_files import FOLDER, NAMES, SHAPES, values_of
from tests.shard.weights.quantised_files.make import digest
from tests.tiny_models import make_tiny, prompt_logits, random_ids

SHARDED = [name for name in NAMES if name != "gptq-4-desc-act"]
FLOATS = ("float-quantized", "fp8")      # which become plain numbers
TABLES = ("nf4", "fp4")
IDS = random_ids(40, 64)
BLOCK = "model.layers.0"


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_the_formats_own_library(name: str) -> None:
    expected = json.loads((FOLDER / name / "expected.json").read_text())
    assert len(expected) == len(SHAPES)
    for each, its_digest in expected.items():
        assert digest(values_of(name, each)) == its_digest, each


def dequantised(name: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(FOLDER / name)
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config).float().eval()
    found = load_file(FOLDER / name / "model.safetensors")
    plain = {key: tensor.float() for key, tensor in found.items() if key.removeprefix("model.") in (
        "embed_tokens.weight", "norm.weight", "lm_head.weight") or "layernorm" in key}
    quantised = {f"{linear}.weight": values_of(name, linear)
                 for linear in json.loads((FOLDER / name / "expected.json").read_text())}
    model.load_state_dict(plain | quantised)
    return model


def logits(name: str, group: Group, dtype: torch.dtype, options: ModelOptions = AS_STORED) -> Tensor | None:
    return prompt_logits(Decoder.load(FOLDER / name, dtype, group, options=options), IDS)


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_dequantised_model_in_transformers(name: str) -> None:
    with torch.no_grad():
        expected = dequantised(name)(IDS[None]).logits[0]
    for activations, tolerance in (("bf16", 2e-5), (None, 2e-5 if name in (*FLOATS, *TABLES) else 0.03)):
        found = logits(name, Group(), torch.float32, ModelOptions(activations=activations))
        assert found is not None
        error = (found - expected).norm() / expected.norm()
        assert error < tolerance


def make_plain(folder: Path) -> Path:
    return make_tiny(folder, heads=8, kv_heads=8, head_dim=8, layers=1, hidden=64, intermediate=128, vocab=64)


def in_pairs(sums: list[Tensor]) -> Tensor:
    while len(sums) > 1:
        sums = [left + right for left, right in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0]


@pytest.mark.parametrize("world_size", [2, 4, 8])
@pytest.mark.parametrize("name", [*NAMES, *(f"to {name}" for name in ROUNDINGS)])
def test_ranks_have_the_bits_of_one(name: str, world_size: int, tmp_path: Path) -> None:
    folder, options = FOLDER / name, AS_STORED
    if name.startswith("to "):
        folder, options = make_plain(tmp_path), ModelOptions(name.removeprefix("to "))
    checkpoint, config = Checkpoint(folder), read_model_config(folder, options)
    whole, *ranks = [RankWeights(checkpoint, group, torch.bfloat16, format_of=config.format_of)
                     for group in (Group(), *(Group(rank, world_size) for rank in range(world_size)))]
    x = torch.randn(5, 128, generator=torch.Generator().manual_seed(1)).bfloat16()
    outputs = {f"{BLOCK}.mlp.gate_proj": 128, f"{BLOCK}.mlp.up_proj": 128}
    half = x[:, :64].contiguous()
    gate, up = linear(half, whole.linears(whole.own_outputs(outputs, 64))).split(128, dim=1)
    parts = [linear(half, each.linears(each.own_outputs(outputs, 64))).chunk(2, dim=1) for each in ranks]
    assert torch.equal(torch.cat([part for part, _ in parts], dim=1), gate)
    assert torch.equal(torch.cat([part for _, part in parts], dim=1), up)
    for name_of_linear, inputs in (("mlp.down_proj", 128), ("self_attn.o_proj", 64)):
        row_parallel, share = f"{BLOCK}.{name_of_linear}", inputs // world_size
        if name == "gptq-4-desc-act":
            with pytest.raises(CheckpointError, match=r"_proj.g_idx: its groups \(desc_act\) mix inputs of several"):
                ranks[0].row_parallel(row_parallel, 64, inputs, ranks[0].own_inner(inputs))
            continue
        sums = [linear(x[:, rank * share : (rank + 1) * share].contiguous(),
                       each.row_parallel(row_parallel, 64, inputs, each.own_inner(inputs)), partial=True)
                for rank, each in enumerate(ranks)]
        expected = linear(x[:, :inputs].contiguous(),
                          whole.row_parallel(row_parallel, 64, inputs, whole.own_inner(inputs)), partial=True)
        assert torch.equal(in_pairs(sums), expected)


@pytest.mark.parametrize("name", NAMES)
def test_parts_may_begin_and_end_anywhere(name: str) -> None:
    """Also within the words, blocks and groups that a format has."""
    folder = FOLDER / name
    weights = RankWeights(Checkpoint(folder), Group(), torch.float32, format_of=read_model_config(folder).format_of)
    up, down, rows, columns = f"{BLOCK}.mlp.up_proj", f"{BLOCK}.mlp.down_proj", slice(13, 77), slice(5, 118)
    whole, part = (linear(torch.eye(64), weights.linears([(up, LinearPart(128, 64, own, slice(0, 64)))]))
                   for own in (slice(0, 128), rows))
    assert torch.equal(part, whole[:, rows])
    if name != "gptq-4-desc-act":        # whose groups mix the inputs
        whole, part = (linear(torch.eye(own.stop - own.start), weights.row_parallel(down, 64, 128, OwnInputs((own,))))
                       for own in (slice(0, 128), columns))
        assert torch.equal(part, whole[columns])


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 8])
def test_groups_have_the_logits_of_one(world_size: int, tmp_path: Path) -> None:
    results, *_ = run_ranks(_logits_of_rank, world_size, tmp_path)
    for name in SHARDED:
        assert torch.equal(results[name], logits(name, Group(), torch.bfloat16)), name


def _logits_of_rank(rank: int, world_size: int, folder: Path, _barrier: Barrier) -> Results:
    group = connect(f"file://{folder / 'store'}", rank, world_size)
    return {name: logits(name, group, torch.bfloat16) for name in SHARDED}
