"""Configurations and files that are broken, or made to do harm: each ends in one sentence, and soon."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.weights.stored import CheckpointError
from tests.family_models import make_family

ABSENT = "absent"
BILLION = 10**9
INDEX = "model.safetensors.index.json"
CONFIGURATIONS: list[tuple[str, dict[str, Any]]] = [
    ("ernie4_5", {"hidden_size": -64}),
    ("ernie4_5", {"hidden_size": 0}),
    ("ernie4_5", {"hidden_size": BILLION}),
    ("ernie4_5", {"hidden_size": 2**63}),
    ("ernie4_5", {"hidden_size": "64"}),
    ("ernie4_5", {"hidden_size": 64.5}),
    ("ernie4_5", {"hidden_size": ABSENT}),
    ("ernie4_5", {"vocab_size": 0}),
    ("ernie4_5", {"vocab_size": 2**31}),
    ("ernie4_5", {"num_hidden_layers": BILLION}),
    ("ernie4_5", {"num_hidden_layers": True}),
    ("ernie4_5", {"num_hidden_layers": 3}),
    ("ernie4_5", {"num_attention_heads": 0}),
    ("ernie4_5", {"num_attention_heads": BILLION}),
    ("ernie4_5", {"num_key_value_heads": 3}),
    ("ernie4_5", {"head_dim": 15}),
    ("ernie4_5", {"head_dim": -16}),
    ("ernie4_5", {"head_dim": BILLION}),
    ("ernie4_5", {"intermediate_size": 97}),
    ("ernie4_5", {"max_position_embeddings": -1}),
    ("ernie4_5", {"max_position_embeddings": 10**15}),
    ("ernie4_5", {"rms_norm_eps": -1.0}),
    ("ernie4_5", {"rms_norm_eps": float("nan")}),
    ("ernie4_5", {"rms_norm_eps": float("inf")}),
    ("ernie4_5", {"hidden_act": "unheard_of"}),
    ("ernie4_5", {"hidden_act": ["silu"]}),
    ("ernie4_5", {"tie_word_embeddings": "yes"}),
    ("ernie4_5", {"dtype": "float7"}),
    ("ernie4_5", {"eos_token_id": [[1]]}),
    ("ernie4_5", {"architectures": ABSENT}),
    ("ernie4_5", {"architectures": []}),
    ("ernie4_5", {"architectures": ["LlamaForCausalLM", "Ernie4_5ForCausalLM"]}),
    ("ernie4_5", {"architectures": ["../../EvilForCausalLM"]}),
    ("ernie4_5", {"rope_parameters": "linear"}),
    ("ernie4_5", {"rope_parameters": {"rope_type": "linear", "factor": 0}}),
    ("ernie4_5", {"rope_parameters": {"rope_type": "spiral"}}),
    ("ernie4_5", {"rope_parameters": {"rope_type": "default", "rope_theta": -5.0}}),
    ("ernie4_5", {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}),
    ("ernie4_5", {"quantization_config": {"quant_method": "unheard_of"}}),
    ("ernie4_5", {"quantization_config": {"quant_method": "gptq", "bits": 10**6}}),
    ("ernie4_5", {"quantization_config": [1, 2]}),
    ("gemma3", {"layer_types": ["full_attention"]}),
    ("gemma3", {"layer_types": ["full_attention", "half_attention"]}),
    ("gemma3", {"sliding_window": -4}),
    ("gemma2", {"final_logit_softcapping": "high"}),
    ("gpt2", {"n_head": 7}),
    ("gpt2", {"n_positions": BILLION}),
    ("falcon, second", {"num_kv_heads": 0}),
    ("mixtral", {"num_local_experts": BILLION}),
    ("mixtral", {"num_local_experts": 9}),
    ("mixtral", {"num_experts_per_tok": 9}),
    ("mixtral", {"num_experts_per_tok": -1}),
    ("glm4_moe, groups", {"n_group": 5}),
    ("glm4_moe, groups", {"topk_group": 50}),
    ("deepseek_v2", {"kv_lora_rank": 0}),
    ("deepseek_v2", {"v_head_dim": BILLION}),
    ("deepseek_v2", {"qk_rope_head_dim": 7}),
    ("deepseek_v2", {"qk_nope_head_dim": 24}),
    ("deepseek_v2", {"topk_method": "best"}),
    ("deepseek_v2, groups", {"n_group": 0}),
    ("deepseek_v3", {"q_lora_rank": "forty"}),
    ("deepseek_v3", {"q_lora_rank": ABSENT}),
    ("deepseek_v3", {"n_group": 3}),
    ("deepseek_v3", {"moe_layer_freq": 2}),
    ("glm4_moe_lite", {"mlp_layer_types": ["dense"]}),
    ("qwen2_moe, some blocks", {"mlp_only_layers": "all"}),
    ("qwen2_moe, some blocks", {"decoder_sparse_step": 0}),
    ("gpt_oss", {"swiglu_limit": 8.0}),
    ("qwen3_next", {"linear_num_key_heads": 3}),
    ("qwen3_next", {"linear_num_value_heads": BILLION}),
    ("granitemoehybrid", {"mamba_n_heads": BILLION}),
    ("qwen3_next", {"linear_key_head_dim": BILLION}),
    ("qwen3_next", {"linear_conv_kernel_dim": 1}),
    ("qwen3_next", {"layer_types": ["linear_attention", "linear_attention"]}),
    ("granitemoehybrid", {"mamba_n_heads": 7}),
    ("granitemoehybrid", {"mamba_n_groups": 2}),
    ("granitemoehybrid", {"time_step_limit": [2, 1]}),
    ("qwen3_5, of images", {"text_config": None}),
]


def cut(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def with_header(header: bytes, length: int | None = None) -> Callable[[Path], None]:
    def write(model: Path) -> None:
        size = len(header) if length is None else length
        (model / "model.safetensors").write_bytes(size.to_bytes(8, "little") + header)
    return write


def with_entry(entry: dict[str, Any]) -> Callable[[Path], None]:
    return with_header(json.dumps({"model.embed_tokens.weight": entry}).encode())


def with_index(content: Any) -> Callable[[Path], None]:
    def write(model: Path) -> None:
        (model / "model.safetensors").unlink()
        (model / INDEX).write_text(json.dumps(content))
    return write


def with_config(content: bytes) -> Callable[[Path], None]:
    return lambda model: (model / "config.json").write_bytes(content) and None


FILES: dict[str, Callable[[Path], None]] = {
    "no weights": lambda model: (model / "model.safetensors").unlink(),
    "cut short": cut,
    "no header": with_header(b""),
    "a header of no JSON": with_header(b"{{{{"),
    "a header longer than the file": with_header(b"{}", 2**60),
    "a header of a list": with_header(b"[1, 2]"),
    "a header that is deep": with_header(b"[" * 100_000),
    "no offsets": with_entry({"dtype": "F32", "shape": [160, 64]}),
    "offsets beyond the file": with_entry({"dtype": "F32", "shape": [160, 64], "data_offsets": [0, 2**50]}),
    "offsets backwards": with_entry({"dtype": "F32", "shape": [160, 64], "data_offsets": [9, 0]}),
    "a shape below zero": with_entry({"dtype": "F32", "shape": [-160, 64], "data_offsets": [0, 0]}),
    "a shape of text": with_entry({"dtype": "F32", "shape": "all", "data_offsets": [0, 0]}),
    "a dtype that is none": with_entry({"dtype": "F7", "shape": [160, 64], "data_offsets": [0, 0]}),
    "an index of no map": with_index([]),
    "an index of a file that is missing": with_index({"weight_map": {"a": "b.safetensors"}}),
    "an index of a folder": with_index({"weight_map": {"a": "."}}),
    "an index of a device": with_index({"weight_map": {"a": "/dev/zero"}}),
    "no configuration": lambda model: (model / "config.json").unlink(),
    "an empty configuration": with_config(b""),
    "a configuration of no JSON": with_config(b"\xff\xfe{"),
    "a configuration of a list": with_config(b"[]"),
    "a configuration that is deep": with_config(b'{"a":' * 100_000),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def original(family: str) -> Path:
        if family not in made:
            made[family] = make_family(tmp_path_factory.mktemp("model"), family)
        return made[family]

    return original


@pytest.fixture
def clock() -> Iterator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < 5


def expect_sentence(model: Path) -> None:
    with pytest.raises((ModelConfigError, CheckpointError)) as raised:
        Decoder.load(model, None, Group())
    assert str(raised.value).startswith(str(model)), raised.value
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 2500


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("family", "changes"), CONFIGURATIONS, ids=lambda value: str(value)[:50])
def test_configurations(
    tmp_path: Path, originals: Callable[[str], Path], family: str, changes: dict[str, Any]
) -> None:
    model = originals(family)
    for path in model.glob("*.safetensors"):
        (tmp_path / path.name).symlink_to(path)
    config = json.loads((model / "config.json").read_text()) | changes
    config = {key: value for key, value in config.items() if value is not ABSENT}
    (tmp_path / "config.json").write_text(json.dumps(config))
    expect_sentence(tmp_path)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("spoil", FILES.values(), ids=FILES)
def test_files(tmp_path: Path, originals: Callable[[str], Path], spoil: Callable[[Path], None]) -> None:
    model = tmp_path / "model"
    shutil.copytree(originals("ernie4_5"), model)
    spoil(model)
    expect_sentence(model)
