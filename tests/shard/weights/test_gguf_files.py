"""Models in GGUF files, which llama.cpp's programs made, against what transformers reads of the same files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from torch import Tensor

from penstock.checkpoints.gguf.folder import checkpoint_of
from penstock.kernels.linear import linear
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.model_options import AS_STORED, ModelOptions
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.rank_weights import RankWeights
from tests.gguf_files import FOLDER, TYPES
from tests.tiny_models import prompt_logits, random_ids

IDS = random_ids(40, 512)
FILES = [*(f"llama-{kind}" for kind in TYPES), "qwen2", "llama3"]
PLAIN = ("llama-BF16", "llama-F16")
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(file: str) -> Iterator[Path]:
    with checkpoint_of(FOLDER / f"{file}.gguf") as made:
        yield made


def in_transformers(file: str) -> Any:
    """Returns the model with the weights that transformers dequantises."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = FOLDER / f"{file}.gguf"
    config = AutoConfig.for_model(**load_gguf_checkpoint(path)["config"])
    if file == "llama3":                 # transformers leaves the scaling in such a file alone
        config.rope_parameters = LLAMA3_ROPE
    model = AutoModelForCausalLM.from_config(config).float().eval()
    missing, unexpected = model.load_state_dict(
        load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"], strict=False)
    assert not unexpected
    assert set(missing) <= ({"lm_head.weight"} if config.tie_word_embeddings else set())
    return model


def logits(folder: Path, options: ModelOptions = AS_STORED) -> Tensor:
    found = prompt_logits(Decoder.load(folder, torch.float32, Group(), options=options), IDS)
    assert found is not None
    return found


def test_logits_are_those_of_the_dequantised_model_in_transformers(file: str, folder: Path) -> None:
    with torch.no_grad():
        expected = in_transformers(file)(IDS[None]).logits[0]
    choices = [AS_STORED] if file in PLAIN else [ModelOptions(activations="bf16"), AS_STORED]
    for options, tolerance in zip(choices, (2e-5, 0.03), strict=False):
        error = (logits(folder, options) - expected).norm() / expected.norm()
        assert error < tolerance


def test_weights_are_those_of_the_librarys_dequantiser(file: str, folder: Path) -> None:
    options = AS_STORED if file in PLAIN else ModelOptions(activations="bf16")
    weights = RankWeights(Checkpoint(folder), Group(), torch.float32,
                          format_of=read_model_config(folder, options).format_of)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(FOLDER / f"{file}.gguf").tensors}
    for theirs, ours in (("token_embd", "model.embed_tokens"), ("blk.0.ffn_down", "model.layers.0.mlp.down_proj"),
                         ("blk.0.attn_v", "model.layers.0.self_attn.v_proj")):
        tensor = tensors[f"{theirs}.weight"]
        inputs, outputs = (int(length) for length in tensor.shape)
        expected = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        unit = linear(torch.eye(inputs), weights.linears(weights.own_outputs({ours: outputs}, inputs))).T
        assert torch.equal(unit.float(), expected), theirs


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_ranks_have_the_bits_of_one(folder: Path, world_size: int) -> None:
    config, checkpoint = read_model_config(folder), Checkpoint(folder)
    whole, *ranks = [RankWeights(checkpoint, group, torch.bfloat16, format_of=config.format_of)
                     for group in (Group(), *(Group(rank, world_size) for rank in range(world_size)))]
    hidden, inner = config.hidden_size, config.mlp.inner_size
    x = torch.randn(5, hidden, generator=torch.Generator().manual_seed(1)).bfloat16()
    heads = {f"model.layers.0.self_attn.{name}_proj": 64 for name in "qkv"}
    expected = linear(x, whole.linears(whole.own_outputs(heads, hidden))).split(64, dim=1)
    parts = [linear(x, each.linears(each.own_outputs(heads, hidden))).chunk(3, dim=1) for each in ranks]
    for number, name in enumerate(heads):
        assert torch.equal(torch.cat([part[number] for part in parts], dim=1), expected[number]), name
    y = torch.randn(5, inner, generator=torch.Generator().manual_seed(2)).bfloat16()
    down, share = "model.layers.0.mlp.down_proj", inner // world_size
    sums = [linear(y[:, rank * share : (rank + 1) * share].contiguous(),
                   each.row_parallel(down, hidden, inner, each.own_inner(inner)), partial=True)
            for rank, each in enumerate(ranks)]
    while len(sums) > 1:
        sums = [left + right for left, right in zip(sums[::2], sums[1::2], strict=True)]
    assert torch.equal(sums[0].bfloat16(), linear(y, whole.row_parallel(down, hidden, inner, whole.own_inner(inner))))
