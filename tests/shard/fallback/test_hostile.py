"""Configurations and files that are broken, or made to do harm, of an architecture that transformers computes: each
ends in one sentence, and soon."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.shard.communication.distributed import Group
from penstock.shard.fallback import architectures
from penstock.shard.fallback.load import load
from penstock.shard.fallback.model import TransformersModel
from penstock.shard.models.families import NAMES
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model_options import AS_STORED, ModelOptions
from penstock.shard.weights.stored import CheckpointError

ABSENT = "absent"
BILLION = 10**9
CASES: list[dict[str, Any]] = [
    {"hidden_size": -64}, {"hidden_size": 0}, {"hidden_size": BILLION}, {"hidden_size": "64"}, {"hidden_size": 96},
    {"num_layers": BILLION}, {"num_layers": 4000}, {"num_layers": 3}, {"num_heads": 0}, {"num_heads": BILLION},
    {"num_heads": 7}, {"vocab_size": -1}, {"vocab_size": 10**12}, {"max_position_embeddings": 10**12},
    {"max_position_embeddings": -5}, {"activation_function": "unheard_of"}, {"attention_types": "all"},
    {"dtype": "float7"}, {"eos_token_id": [[1]]},
    {"architectures": ABSENT}, {"architectures": ["EvilForCausalLM"]}, {"architectures": ["os.system"]},
    {"architectures": ["BertModel"]}, {"quantization_config": {"quant_method": "gptq"}},
    {"architectures": ["EvilForCausalLM"], "auto_map": {"AutoModelForCausalLM": "evil.EvilForCausalLM"}}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    path = tmp_path_factory.mktemp("gpt_neo")
    torch.manual_seed(0)
    GPTNeoForCausalLM(GPTNeoConfig(
        vocab_size=160, hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        max_position_embeddings=128, bos_token_id=0, eos_token_id=2)).save_pretrained(path)
    return path


def refusal(path: Path, options: ModelOptions = AS_STORED, group: Group | None = None) -> str:
    """What the load says, which it says within seconds."""
    began = time.monotonic()
    with pytest.raises((ModelConfigError, CheckpointError)) as raised:
        TransformersModel.load(path, None, group or Group(), options)
    assert time.monotonic() - began < 5
    return str(raised.value)


@pytest.mark.parametrize("keys", CASES, ids=str)
def test_a_broken_configuration_ends_in_a_sentence(model: Path, tmp_path: Path, keys: dict[str, Any]) -> None:
    config = json.loads((model / "config.json").read_text()) | keys
    config = {key: value for key, value in config.items() if value != ABSENT}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(model / "model.safetensors")
    message = refusal(tmp_path)
    assert str(tmp_path) in message
    assert len(message.splitlines()) == 1
    assert len(message.replace(NAMES, "")) < 800


def test_files_that_are_cut_short_end_in_a_sentence(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    assert "neither model.safetensors nor" in refusal(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:5000])
    assert "cut short or damaged" in refusal(tmp_path)


def test_what_native_models_alone_have_is_refused(model: Path) -> None:
    assert "--quantize int8" in refusal(model, ModelOptions(quantize="int8"))
    assert "--activations int8" in refusal(model, ModelOptions(activations="int8"))
    assert "--rope-scaling linear" in refusal(model, ModelOptions(rope_scaling="linear"))
    assert "runs on 1 shard, not on 2" in refusal(model, group=Group(0, 2))


def test_without_transformers_a_sentence_says_what_helps(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architectures, "is_installed", lambda: False)
    assert "pip install 'penstock[transformers]'" in refusal(model)


def test_files_without_an_index_are_read(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(model / "config.json")
    tensors = load_file(model / "model.safetensors")
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, tmp_path / f"part-{number}.safetensors", {"format": "pt"})
    theirs, ours = (load(folder, torch.float32, None).state_dict() for folder in (model, tmp_path))
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
