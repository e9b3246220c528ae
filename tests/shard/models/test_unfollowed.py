"""What is told at start of files that are not followed."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig
from transformers.utils import quantization_config

from penstock.shard.models.end_tokens import GENERATION
from penstock.shard.models.reading import read_model_config
from penstock.shard.models.unfollowed import SETTINGS_OF_ANSWERS, absent_sizes, unfollowed
from penstock.shard.weights.format import WeightFormat

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64, "eos_token_id": 2,
    "dtype": "bfloat16"}
WITHOUT_EFFECT = {
    "_from_model_config", "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight",
    "assistant_lookbehind", "bos_token_id", "cache_config", "cache_implementation", "compile_config",
    "continuous_batching_config", "decoder_start_token_id", "disable_compile", "eos_token_id", "is_assistant",
    "low_memory", "max_cache_len", "max_matching_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule",
    "output_attentions", "output_hidden_states", "output_logits", "output_scores", "pad_token_id",
    "prefill_chunk_size", "prompt_lookup_num_tokens", "return_dict_in_generate", "speculation_type",
    "target_lookbehind", "transformers_version", "use_cache", "use_mtp"}
"""Of what an answer of one sequence is not changed by, or, the end tokens, of what is followed."""
COMPRESSED = {"quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed"}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}


def told(folder: Path, generation: dict[str, Any] | None = None, **changes: Any) -> list[str]:
    """The sentences, without the folder."""
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    (folder / GENERATION).unlink(missing_ok=True)
    if generation is not None:
        (folder / GENERATION).write_text(json.dumps(generation))
    return [sentence.replace(f"{folder}/", "").replace(str(folder), "model")
            for sentence in unfollowed(folder, CONFIG["vocab_size"])]


def test_nothing_is_told_of_files_that_are_followed(tmp_path: Path) -> None:
    neutral = {"temperature": 1.0, "top_p": 1.0, "do_sample": False, "repetition_penalty": 1.0, "suppress_tokens": []}
    assert told(tmp_path) == told(tmp_path, {"eos_token_id": [2, 3], **neutral}) == []


def test_end_tokens_that_cannot_be_generated(tmp_path: Path) -> None:
    left_out = ("model: eos_token_id: 64, -1 cannot be generated, for the model has 64 tokens, and so ends no answer")
    none = ("model: no file names a token that ends an answer: answers end at their length or a stop sequence, and "
            "grammars and tools are refused")
    assert told(tmp_path, eos_token_id=[64, 2, -1]) == [left_out]
    assert told(tmp_path, {"eos_token_id": [64, -1]}) == [left_out, none]
    assert told(tmp_path, eos_token_id=None) == [none]


def test_settings_of_sampling(tmp_path: Path) -> None:
    settings = {"do_sample": True, "temperature": 0.6, "top_k": 20, "suppress_tokens": [*range(100)]}
    shown = ("do_sample True, suppress_tokens [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1…, "
             "temperature 0.6, top_k 20: not applied, as in TGI: a request's own parameters alone say how it is "
             "sampled and where it ends")
    assert told(tmp_path, settings) == [f"generation_config.json: {shown}"]
    assert told(tmp_path, **settings) == [f"config.json: {shown}"]  # as of before there were files of them
    assert told(tmp_path, {}, **settings) == []  # which transformers reads no more then


def test_every_setting_of_transformers_is_known() -> None:
    assert {*vars(GenerationConfig())} - WITHOUT_EFFECT == {*SETTINGS_OF_ANSWERS}


@pytest.mark.parametrize(("quantization", "sentences"), [
    ({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}, [
        "activation_scheme dynamic: not followed, for --activations says what the inputs of linears are multiplied "
        "as"]),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_threshold": 6.0, "llm_int8_has_fp16_weight":
      False}, ["llm_int8_threshold 6.0: not followed, for columns of outliers are rounded as all others are"]),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_threshold": 6.0,
      "bnb_4bit_compute_dtype": "bfloat16"}, []),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_compute_dtype": "float16"}, [
        "bnb_4bit_compute_dtype float16: not followed, for linears compute in the model's own dtype, or --dtype"]),
    (COMPRESSED | {"kv_cache_scheme": {"num_bits": 8}, "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": INT8, "input_activations": {"num_bits": 8}}}}, [
        "input_activations {'num_bits': 8}: not followed, for --activations says what the inputs of linears are "
        "multiplied as",
        "kv_cache_scheme {'num_bits': 8}: not followed, for --kv-cache-dtype says what keys and values are stored as"]),
    (COMPRESSED | {"kv_cache_scheme": None, "config_groups": {"group_0": {"targets": ["Linear"], "weights": INT8,
                                                                          "input_activations": None}}}, []),
    ({"quant_method": "gptq", "bits": 4, "act_bits": 16}, []),
])
def test_keys_of_quantisation(tmp_path: Path, quantization: dict[str, Any], sentences: list[str]) -> None:
    assert told(tmp_path, quantization_config=quantization) == [f"config.json: {each}" for each in sentences]
    assert read_model_config(tmp_path).quantization.name


def test_sizes_that_are_absent(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"], "n_layer": 2}))
    assert absent_sizes(tmp_path) == [
        f"{tmp_path}/config.json lacks sizes, in whose place are those that transformers takes: vocab_size 50257, "
        "n_embd 768, n_head 12, n_positions 1024"]
    bloom = {"architectures": ["BloomForCausalLM"], "vocab_size": 64, "n_embed": 64, "n_layer": 2, "n_head": 2}
    (tmp_path / "config.json").write_text(json.dumps(bloom))
    assert absent_sizes(tmp_path) == []
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert absent_sizes(tmp_path) == []
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["OfTransformersAlone"]}))
    assert absent_sizes(tmp_path) == []


@pytest.mark.parametrize(("name", "own"), [
    ("GPTQConfig", {"bits": 4}), ("AwqConfig", {}), ("FineGrainedFP8Config", {}), ("FbgemmFp8Config", {}),
    ("BitsAndBytesConfig", {"load_in_4bit": True}), ("BitsAndBytesConfig", {"load_in_8bit": True}),
    ("Mxfp4Config", {})])
def test_what_transformers_writes_by_default_is_read(tmp_path: Path, name: str, own: dict[str, Any]) -> None:
    made = getattr(quantization_config, name)(**own).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": made}))
    whole = _read(tmp_path)
    # And each key that is absent says what it does in transformers.
    parameters = inspect.signature(getattr(quantization_config, name).__init__).parameters
    for key in made.keys() & parameters.keys() - own.keys() - {"weight_block_size"}:
        (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": {
            other: value for other, value in made.items() if other != key}}))
        assert _read(tmp_path) == whole, key


def _read(folder: Path) -> tuple[str, str | None, list[str]]:
    """How the weights are stored and computed: the format's name, what inputs are, and the format of each tensor."""
    found = read_model_config(folder).quantization
    places = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj", "lm_head"
    return found.name, found.activations, [_said(found.format_of(place)) for place in places]


def _said(format_: WeightFormat) -> str:
    return f"{type(format_).__name__} {vars(format_)}"
