"""What quantization_config, --quantize and --activations say of each linear, and what they may not say."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.quantizers.quantizers_utils import should_convert_module

from penstock.shard.models.keys import Keys, ModelConfigError
from penstock.shard.models.model_options import AS_STORED, ModelOptions, Quantization
from penstock.shard.models.names import USUAL_NAMES
from penstock.shard.models.quantised_linears import is_kept
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.compressed import CompressedIntegers
from penstock.shard.weights.dense import DENSE
from penstock.shard.weights.float8 import Float8
from penstock.shard.weights.gptq import Gptq
from penstock.shard.weights.rounded import Rounded

Q, DOWN = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"
HEAD, EMBEDDING = "lm_head", "model.embed_tokens"
BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}
GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
NF4: dict[str, Any] = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
FP8: dict[str, Any] = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
INTEGERS: dict[str, Any] = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def compressed(**groups: dict[str, Any]) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
            "ignore": ["lm_head"], "config_groups": groups or {"group_0": {"targets": ["Linear"], "weights": INTEGERS}}}


def read(folder: Path, quantization: object, options: ModelOptions = AS_STORED, **changes: Any) -> Quantization:
    given = {} if quantization is None else {"quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(BASE | given | changes))
    return read_model_config(folder, options).quantization


@pytest.mark.parametrize(("quantization", "quantize", "numerics"), [
    (None, None, ""),
    (GPTQ, None, "gptq/activations-int8/"),
    (GPTQ, "gptq", "gptq/activations-int8/"),
    (GPTQ, "marlin", "gptq/activations-int8/"),
    (AWQ, "awq", "awq/activations-int8/"),
    (AWQ, "marlin", "awq/activations-int8/"),
    (compressed(), "compressed-tensors", "compressed-tensors/activations-int8/"),
    (NF4, "bitsandbytes-nf4", "bitsandbytes-nf4/activations-float/"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes", "bitsandbytes/activations-int8/"),
    (FP8, "fp8", "fp8/"),
    ({"quant_method": "mxfp4"}, "mxfp4", "mxfp4/activations-int8/"),
    (None, "int8", "int8/activations-int8/"),
    (None, "bitsandbytes-fp4", "bitsandbytes-fp4/activations-float/"),
])
def test_what_decides_bits_has_a_name(
    tmp_path: Path, quantization: dict[str, Any] | None, quantize: str | None, numerics: str
) -> None:
    assert read(tmp_path, quantization, ModelOptions(quantize)).numerics == numerics


def test_activations_may_stay_as_they_are(tmp_path: Path) -> None:
    options = ModelOptions(activations="bf16")
    assert read(tmp_path, GPTQ, options).numerics == "gptq/activations-float/"
    assert read(tmp_path, None, options).numerics == ""


@pytest.mark.parametrize(("quantization", "options", "message"), [
    (AWQ, ModelOptions("gptq"), "--quantize gptq, but the checkpoint's quant_method is awq"),
    (GPTQ, ModelOptions("int4"), "--quantize int4, but the checkpoint's quant_method is gptq"),
    (NF4, ModelOptions("bitsandbytes-fp4"), "--quantize bitsandbytes-fp4, but the checkpoint is bitsandbytes-nf4"),
    (None, ModelOptions("awq"), "--quantize awq, but the checkpoint is not quantised"),
    (None, ModelOptions("fp8"), "--quantize fp8, but the checkpoint is not quantised"),
    (None, ModelOptions("exl2"), "--quantize exl2: "),
    (None, ModelOptions(activations="int8"), "--activations int8: the checkpoint is not quantised"),
    (NF4, ModelOptions(activations="int8"), "--activations int8: the weights are bitsandbytes-nf4, which are no"),
    (FP8, ModelOptions(activations="int8"), r"--activations int8: the weights are numbers of 8 bits \(fp8\), which"),
    (None, ModelOptions("bitsandbytes-nf4", "int8"), "--activations int8: the weights are bitsandbytes-nf4"),
    ("gptq", AS_STORED, "quantization_config: expected none, or a quant_method of "),
    ({"quant_method": "aqlm"}, AS_STORED, "quantization_config: expected none, or a quant_method of awq, bitsandbytes"),
    (GPTQ | {"bits": 3}, AS_STORED, "quantization_config.bits: expected 4 or 8, the only ones supported, found 3"),
    (GPTQ | {"group_size": 0}, AS_STORED, "quantization_config.group_size: expected a whole number of at least 1"),
    (GPTQ | {"group_size": 12}, AS_STORED, "quantization_config.group_size: expected a multiple of 8, or -1 for all"),
    (GPTQ | {"desc_act": "no"}, AS_STORED, "quantization_config.desc_act: expected true or false"),
    (GPTQ | {"checkpoint_format": "marlin"}, AS_STORED, "checkpoint_format: expected gptq or gptq_v2"),
    (GPTQ | {"rotation": "hadamard"}, AS_STORED, "quantization_config.rotation: expected no such key, for what"),
    (GPTQ | {"dynamic": {"-:(": {}}}, AS_STORED, r"dynamic.-:\(: expected names or regular expressions"),
    (GPTQ | {"dynamic": {"-:([a-z.]+)\\1x": {}}}, AS_STORED, r"regular expressions \(it has \\1, which is not read\)"),
    (GPTQ | {"dynamic": {"a": {"bits": 5}}}, AS_STORED, "quantization_config.dynamic.a.bits: expected 4 or 8"),
    (GPTQ | {"modules_in_block_to_quantize": "q"}, AS_STORED, "modules_in_block_to_quantize: expected a list"),
    (AWQ | {"bits": 8}, AS_STORED, "quantization_config.bits: expected 4, the only one supported, found 8"),
    (AWQ | {"version": "gemv"}, AS_STORED, "quantization_config.version: expected gemm, the only order supported"),
    (AWQ | {"zero_point": False}, AS_STORED, "quantization_config.zero_point: expected True"),
    (AWQ | {"modules_to_not_convert": [1]}, AS_STORED, "modules_to_not_convert: expected a list of names"),
    (FP8 | {"weight_block_size": [128]}, AS_STORED, "weight_block_size: expected a list of 2 whole"),
    (FP8 | {"weight_block_size": [0.5, 128]}, AS_STORED, "weight_block_size: expected a list of 2 whole numbers"),
    (FP8 | {"fmt": "e5m2"}, AS_STORED, "quantization_config.fmt: expected 'e4m3'"),
    (NF4 | {"bnb_4bit_quant_type": "int4"}, AS_STORED, "bnb_4bit_quant_type: expected nf4 or fp4"),
    (NF4 | {"bnb_4bit_quant_storage": "bfloat16"}, AS_STORED, "bnb_4bit_quant_storage: expected 'uint8'"),
    (compressed(a={"targets": ["Linear"], "weights": INTEGERS | {"num_bits": 3}}), AS_STORED,
     "quantization_config.config_groups.a.weights.num_bits: expected 4 or 8"),
    (compressed(a={"targets": ["re:("], "weights": INTEGERS}), AS_STORED, "targets: expected names or regular"),
    (compressed() | {"format": "nvfp4-pack-quantized"}, AS_STORED, "format: expected one of pack-quantized, "),
    (compressed() | {"sparsity_config": {"format": "sparse-24-bitmask"}}, AS_STORED, "sparsity_config.format: "),
    (compressed() | {"transform_config": {"config_groups": {"u": 1}}}, AS_STORED, "transform_config.config_groups: "),
    (compressed() | {"quantization_status": "frozen"}, AS_STORED, "quantization_status: expected compressed"),
])
def test_what_cannot_be_computed_is_refused_by_its_name(
    tmp_path: Path, quantization: object, options: ModelOptions, message: str
) -> None:
    with pytest.raises(ModelConfigError, match=message):
        read(tmp_path, quantization, options)


def test_linears_of_one_checkpoint_may_be_quantised_in_several_ways(tmp_path: Path) -> None:
    dynamic = {"-:.*down_proj": {}, "+:model\\.layers\\.0\\.": {"bits": 8, "group_size": 32, "desc_act": True}}
    format_of = read(tmp_path, GPTQ | {"dynamic": dynamic}).format_of
    first, other = format_of(Q), format_of(Q.replace("0", "1"))
    assert isinstance(first, Gptq)
    assert isinstance(other, Gptq)
    assert (first.bits, first.group) == (8, 32)
    assert (other.bits, other.group) == (4, 128)
    assert {format_of(name) for name in (DOWN, HEAD, EMBEDDING)} == {DENSE}
    some = {"lm_head": True, "modules_in_block_to_quantize": [["mlp.down_proj"]]}
    format_of = read(tmp_path, GPTQ | some).format_of
    assert format_of(Q) is DENSE
    assert format_of(DOWN) is format_of(HEAD) is not DENSE


def test_names_go_before_patterns_and_these_before_classes(tmp_path: Path) -> None:
    wide = INTEGERS | {"num_bits": 8}
    floats = {"num_bits": 8, "type": "float", "strategy": "channel"}
    format_of = read(tmp_path, compressed(
        of_class={"targets": ["Linear"], "weights": INTEGERS},
        of_pattern={"targets": ["re:.*proj$"], "weights": floats, "format": "float-quantized"},
        of_name={"targets": [Q], "weights": wide})).format_of
    named = format_of(Q)
    assert isinstance(named, CompressedIntegers)
    assert named.bits == 8
    assert isinstance(format_of(DOWN), Float8)
    assert isinstance(format_of("model.other"), CompressedIntegers)
    assert format_of(HEAD) is DENSE
    assert format_of(EMBEDDING) is DENSE


@pytest.mark.parametrize("patterns", [
    ["lm_head"], ["down_proj"], ["model.layers.1"], ["model.layers.0.self_attn.q"], ["layers.1"],
    ["model.layers.*.mlp"],
    ["proj"], ["model.layers.0.(self_attn|mlp)"], [], [r"^(?!.*mlp).*$"], [r"model\.layers\.(?!0\.).*"],
    ["model.", "mlp.$"],
    [r"model\.layers\.\d+\."]])
def test_linears_are_kept_as_transformers_keeps_them(tmp_path: Path, patterns: list[str]) -> None:
    kept = is_kept(Keys(tmp_path, {"kept": patterns}), USUAL_NAMES, "kept")
    marked = is_kept(Keys(tmp_path, {"kept": [f"re:{pattern}" for pattern in patterns]}), USUAL_NAMES, "kept")
    for name in (Q, DOWN, HEAD, Q.replace("0", "10"), "model.layers.1.mlp.up_proj"):
        assert kept(name) == marked(name) == (not should_convert_module(name, patterns))


def test_the_head_keeps_8_bits_and_lends_them_to_the_embedding(tmp_path: Path) -> None:
    format_of = read(tmp_path, None, ModelOptions("int4"), tie_word_embeddings=True).format_of
    head, other = format_of(HEAD), format_of(Q)
    assert isinstance(head, Rounded)
    assert isinstance(other, Rounded)
    assert (head.bits, other.bits) == (8, 4)
    assert format_of(EMBEDDING) is head
    assert read(tmp_path, None, ModelOptions("int4"), tie_word_embeddings=False).format_of(EMBEDDING) is DENSE
    assert read(tmp_path, None, ModelOptions("eetq"), tie_word_embeddings=True).format_of(HEAD) is DENSE


def test_old_checkpoints_say_it_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "quantize_config.json").write_text(json.dumps({"bits": 4, "group_size": 128, "damp_percent": 0.01}))
    assert isinstance(read(tmp_path, None).format_of(Q), Gptq)
    with pytest.raises(ModelConfigError, match=r"quantize_config.json: --quantize awq, but the checkpoint's quant_"):
        read(tmp_path, None, ModelOptions("awq"))


@pytest.mark.parametrize(("file", "content", "name"), [
    ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": False}, "gptq"),
    ("quantize_config.json", {"w_bit": 4, "q_group_size": 128, "zero_point": True, "version": "GEMM"}, "awq"),
    ("quant_config.json", {"w_bit": 4, "q_group_size": 128, "zero_point": True, "version": "GEMM",
                           "modules_to_not_convert": None}, "awq"),
    ("quant_config.json", {"w_bit": 4, "q_group_size": 128, "zero_point": True}, "awq"),
    ("quant_config.json", {"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq"),
])
def test_files_of_quantisers_beside_a_configuration_without_their_keys(
    tmp_path: Path, file: str, content: dict[str, Any], name: str
) -> None:
    (tmp_path / file).write_text(json.dumps(content))
    quantization = read(tmp_path, None)
    assert quantization.name == name
    assert vars(quantization.format_of(Q)) == vars(read(tmp_path, GPTQ if name == "gptq" else AWQ).format_of(Q))
    assert quantization.format_of(HEAD) is DENSE


def test_a_file_of_a_quantiser_that_makes_no_sense(tmp_path: Path) -> None:
    (tmp_path / "quant_config.json").write_text('{"w_bit": 3}')
    with pytest.raises(ModelConfigError, match=r"quant_config.json: w_bit: expected 4, the only one .*, found 3"):
        read(tmp_path, None)


def test_the_first_name_of_compressed_tensors_section(tmp_path: Path) -> None:
    first = read(tmp_path, None, compression_config=compressed())
    assert first.name == "compressed-tensors"
    assert vars(first.format_of(Q)) == vars(read(tmp_path, compressed()).format_of(Q))
    with pytest.raises(ModelConfigError, match=r"config.json: compression_config: expected none, or a quant_method of"):
        read(tmp_path, None, compression_config=[1])
