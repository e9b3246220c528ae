"""gpt-oss as it is published: experts in numbers of 4 bits that share powers of two."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.model_options import ModelOptions
from penstock.shard.weights.stored import CheckpointError
from tests.family_models import make_family, reference
from tests.shard.ranks import make_config, run
from tests.shard.step_programs import Request, alone
from tests.tiny_models import prompt_logits, random_ids

IDS = random_ids(40, 160)
KEPT = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint of blocks, and one of the plain numbers that transformers makes of them."""
    folder = tmp_path_factory.mktemp("models")
    plain, packed = (make_family(folder / name, "gpt_oss", hidden_size=64, intermediate_size=96)
                     for name in ("plain", "packed"))
    tensors, generator = load_file(plain / "model.safetensors"), torch.Generator().manual_seed(4)
    blocks: dict[str, Tensor] = {}
    for name in [name for name in tensors if name.endswith("_proj") and "experts" in name]:
        experts, inputs, outputs = tensors[name].shape
        shape = (experts, outputs, inputs // 32)
        codes = torch.randint(256, (*shape, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(122, 126, shape, generator=generator, dtype=torch.uint8)
        tensors[name] = convert_moe_packed_tensors(codes, scales, dtype=torch.float32).contiguous()
        blocks |= {f"{name}_blocks": codes, f"{name}_scales": scales}
    save_file(tensors, plain / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if f"{name}_blocks" not in blocks}
    save_file(kept | blocks, packed / "model.safetensors")
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": KEPT}
    (packed / "config.json").write_text(json.dumps(config))
    return plain, packed


def logits_of(model: Path, options: ModelOptions) -> Tensor:
    logits = prompt_logits(Decoder.load(model, torch.float32, Group(), options=options), IDS)
    assert logits is not None
    return logits


@torch.no_grad()
def test_logits_are_those_of_the_plain_numbers(models: tuple[Path, Path]) -> None:
    plain, packed = models
    logits = logits_of(packed, ModelOptions(activations="bf16"))
    expected = reference(plain, torch.float32)(IDS[None]).logits[0]
    assert (logits - expected).abs().max() <= 1e-4
    rounded = logits_of(packed, ModelOptions())  # the inputs, to 8 bits
    assert (rounded - expected).norm() <= 0.05 * expected.norm()


@pytest.mark.slow
def test_any_number_of_shards_gives_the_same_bits(models: tuple[Path, Path], tmp_path: Path) -> None:
    requests = [Request(IDS[:30].tolist(), 4)]
    for activations in ("int8", "bf16"):
        config = replace(make_config(models[1], "bfloat16"), activations=activations)
        one, two, four = (run(config, [alone(requests)], tmp_path, size) for size in (1, 2, 4))
        assert one == two == four


def test_a_scale_that_is_no_number(models: tuple[Path, Path], tmp_path: Path) -> None:
    tensors = load_file(models[1] / "model.safetensors")
    tensors["model.layers.1.mlp.experts.down_proj_scales"][3, 5, 1] = 255
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((models[1] / "config.json").read_text())
    with pytest.raises(CheckpointError, match=r"model.safetensors: .*layers.1.mlp.experts.down_proj.*not a number"):
        Decoder.load(tmp_path, torch.float32, Group())
