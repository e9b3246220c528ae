"""The readers of quantization_config, a function for each quant_method."""

from collections.abc import Callable
from typing import Any

from penstock.shard.models.keys import Keys, ModelConfigError
from penstock.shard.models.model_options import ModelOptions, Quantization
from penstock.shard.models.names import TensorNames
from penstock.shard.models.quantised_linears import all_but, check_known, check_patterns, is_kept, pattern_of
from penstock.shard.weights.awq import Awq
from penstock.shard.weights.bitsandbytes import BitsAndBytes4, BitsAndBytes8
from penstock.shard.weights.dense import DENSE
from penstock.shard.weights.float8 import Float8
from penstock.shard.weights.format import FormatOf, WeightFormat
from penstock.shard.weights.gguf import GgufBlocks
from penstock.shard.weights.gguf_blocks import DECODERS
from penstock.shard.weights.gptq import Gptq
from penstock.shard.weights.mxfp4 import Mxfp4
from penstock.system.patterns import Pattern

METHOD = "quant_method"
KEPT = "modules_to_not_convert"
TYPES = "types"
GPTQ_KEYS = (METHOD, "bits", "group_size", "desc_act", "sym", "lm_head", "dynamic", "checkpoint_format", "format",
             "pack_dtype", "modules_in_block_to_quantize")
GPTQ_WITHOUT_EFFECT = (                  # how it was made, and how others compute with it
    "damp_percent", "damp_auto_increment", "static_groups", "true_sequential", "model_name_or_path",
    "model_file_base_name", "meta", "backend", "use_cuda_fp16", "use_exllama", "disable_exllama", "exllama_config",
    "max_input_length", "cache_block_outputs", "batch_size", "block_name_to_quantize", "act_group_aware", "mse",
    "module_name_preceding_first_block", "model_seqlen", "dataset", "tokenizer", "pad_token_id", "autoround_version",
    "iters", "lr", "minmax_lr", "seqlen", "nsamples", "amp", "enable_quanted_input", "enable_minmax_tuning", "seed",
    "scale_dtype", "data_type", "train_bs", "gradient_accumulate_steps", "low_gpu_mem_usage", "provider", "method",
    "hyb_act", "quantizer", "failsafe", "packing_format", "low_cpu_mem_usage", "not_use_best_mse")
AWQ_KEYS = (METHOD, "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version", "format", KEPT)
AWQ_WITHOUT_EFFECT = (*GPTQ_WITHOUT_EFFECT, "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "model_type", "sym",
                      "desc_act", "lm_head", "pack_dtype")
FLOAT8_KEYS = (METHOD, "weight_block_size", "fmt", KEPT, "ignored_layers", "expert_dtype")
FLOAT8_WITHOUT_EFFECT = ("dequantize", "scale_fmt", "is_checkpoint_fp8_serialized")
BITSANDBYTES_KEYS = (METHOD, "load_in_8bit", "load_in_4bit", "_load_in_8bit", "_load_in_4bit", "bnb_4bit_quant_type",
                     "bnb_4bit_use_double_quant", "bnb_4bit_quant_storage", "llm_int8_skip_modules")
BITSANDBYTES_WITHOUT_EFFECT = ("llm_int8_enable_fp32_cpu_offload",)


def read_gptq(keys: Keys, options: ModelOptions, names: TensorNames) -> Quantization:
    check_known(keys, GPTQ_KEYS, GPTQ_WITHOUT_EFFECT)
    keys.expect("pack_dtype", "int32")
    activations = options.activations_for(keys, "gptq", are_whole=True)
    version = "checkpoint_format" if keys.get("checkpoint_format") is not None else "format"
    if keys.get(version, "gptq") not in ("gptq", "gptq_v2", "auto_gptq"):
        raise keys.error(version, "gptq or gptq_v2")

    def make(own: Keys) -> Gptq:
        bits = own.integer("bits", _or(keys, own, "bits"))
        if bits not in (4, 8):
            raise own.error("bits", "4 or 8, the only ones supported")
        is_ordered = not own.switch("desc_act", keys.switch("desc_act"))
        return Gptq(activations, bits, _group(own if own.get("group_size") is not None else keys, "group_size"),
                    keys.get(version) != "gptq_v2", is_ordered)

    usual, rules = make(keys), _rules(keys, make)
    in_blocks = _names_in_blocks(keys)
    has_head = keys.switch("lm_head")

    def format_of(linear: str) -> WeightFormat:
        if linear == names.embedding or (linear == names.head and not has_head):
            return DENSE
        if in_blocks and linear != names.head and not linear.endswith(in_blocks):
            return DENSE
        return next((format_ for pattern, format_ in rules if pattern.matches(linear)), usual)

    return Quantization("gptq", activations, format_of)


def _or(keys: Keys, own: Keys, key: str) -> int | None:
    return None if own is keys else keys.integer(key)


def _rules(keys: Keys, make: Callable[[Keys], Gptq]) -> list[tuple[Pattern, WeightFormat]]:
    """Returns the formats of linears by patterns of their names: `-:` says that they are not quantised, `+:` or nothing
    that they are quantised otherwise."""
    rules: list[tuple[Pattern, WeightFormat]] = []
    section = keys.section("dynamic")
    check_patterns(keys, "dynamic", section.names)
    for name in keys.get("dynamic") or {}:
        pattern = pattern_of(section, name, name.removeprefix("-:").removeprefix("+:"))
        if name.startswith("-:"):
            rules.append((pattern, DENSE))
            continue
        own = section.section(name)
        check_known(own, ("bits", "group_size", "desc_act", "sym"), GPTQ_WITHOUT_EFFECT)
        rules.append((pattern, make(own)))
    return rules


def _names_in_blocks(keys: Keys) -> tuple[str, ...]:
    """Returns the ends of the names of the linears that are quantised; none stand for all."""
    key = "modules_in_block_to_quantize"
    value = keys.get(key) or []
    together = [name for names in value for name in (names if isinstance(names, list) else [names])] \
        if isinstance(value, list) else [None]
    if not all(isinstance(name, str) for name in together):
        raise keys.error(key, "a list of names, or of lists of them")
    return tuple(f".{name}" for name in together)


def _group(keys: Keys, key: str) -> int:
    """Returns how many inputs share a scale; 0 for -1, which stands for all."""
    if keys.get(key) == -1:
        return 0
    group = keys.integer(key, 128)
    if group % 8:
        raise keys.error(key, "a multiple of 8, or -1 for all inputs")
    return group


def read_awq(keys: Keys, options: ModelOptions, names: TensorNames) -> Quantization:
    check_known(keys, AWQ_KEYS, AWQ_WITHOUT_EFFECT)
    bits, group = ("w_bit", "q_group_size") if keys.get("w_bit") is not None else ("bits", "group_size")
    if keys.integer(bits, 4) != 4:
        raise keys.error(bits, "4, the only one supported")
    keys.expect("zero_point", True)
    version = "version" if keys.get("version") is not None else "format"
    if str(keys.get(version, "gemm")).lower() not in ("gemm", "exllama", "ipex"):  # these two hold it as GEMM does
        raise keys.error(version, "gemm, the only order supported")
    activations = options.activations_for(keys, "awq", are_whole=True)
    kept = is_kept(keys, names, KEPT, keeps_head=True)
    return Quantization("awq", activations, all_but(kept, Awq(activations, _group(keys, group))))


def read_float8(keys: Keys, options: ModelOptions, names: TensorNames) -> Quantization:
    """DeepSeek's and Qwen's blocks of outputs and inputs, or one scale for each linear."""
    check_known(keys, FLOAT8_KEYS, FLOAT8_WITHOUT_EFFECT)
    keys.expect("fmt", "e4m3")
    keys.expect("expert_dtype", "fp8")
    block = keys.pair("weight_block_size") if keys.get("weight_block_size") is not None else None
    format_ = Float8("weight_scale" if block is None else "weight_scale_inv", block)
    return _dense_float8("fp8", keys, options, all_but(is_kept(keys, names, KEPT, "ignored_layers"), format_))


def read_fbgemm(keys: Keys, options: ModelOptions, names: TensorNames) -> Quantization:
    """A scale for each output."""
    check_known(keys, FLOAT8_KEYS, FLOAT8_WITHOUT_EFFECT)
    return _dense_float8("fbgemm_fp8", keys, options,
                         all_but(is_kept(keys, names, KEPT), Float8("weight_scale", (1, 0))))


def _dense_float8(name: str, keys: Keys, options: ModelOptions, format_of: FormatOf) -> Quantization:
    options.activations_for(keys, "numbers of 8 bits (fp8)", are_whole=False)
    return Quantization(name, None, format_of)


def read_gguf(keys: Keys, options: ModelOptions, names: TensorNames) -> Quantization:
    """`types` has the type of each linear's blocks."""
    check_known(keys, (METHOD, TYPES), ())
    activations = options.activations_for(keys, "gguf", are_whole=True)
    types: Any = keys.get(TYPES)
    if not isinstance(types, dict) or not all(kind in DECODERS for kind in types.values()):
        raise keys.error(TYPES, f"for each linear one of {', '.join(DECODERS)}")
    formats = {kind: GgufBlocks(activations, kind) for kind in DECODERS}
    return Quantization("gguf", activations, lambda linear: formats[types[linear]] if linear in types else DENSE)


def read_mxfp4(keys: Keys, options: ModelOptions, names: TensorNames) -> Quantization:
    check_known(keys, (METHOD, KEPT), ("dequantize",))
    activations = options.activations_for(keys, "mxfp4", are_whole=True)
    format_ = Mxfp4(activations, "weight_blocks", "weight_scales", has_blocks=True)
    return Quantization("mxfp4", activations, all_but(is_kept(keys, names, KEPT), format_))


def read_bitsandbytes(keys: Keys, options: ModelOptions, names: TensorNames) -> Quantization:
    check_known(keys, BITSANDBYTES_KEYS, BITSANDBYTES_WITHOUT_EFFECT)
    name = bitsandbytes_name(keys)
    if options.quantize not in (None, name):
        raise ModelConfigError(f"{keys.path}: --quantize {options.quantize}, but the checkpoint is {name}")
    kept = is_kept(keys, names, "llm_int8_skip_modules")
    if name == "bitsandbytes":
        activations = options.activations_for(keys, name, are_whole=True)
        return Quantization(name, activations, all_but(kept, BitsAndBytes8(activations)))
    keys.expect("bnb_4bit_quant_storage", "uint8")
    activations = options.activations_for(keys, name, are_whole=False)
    format_ = BitsAndBytes4(activations, name.removeprefix("bitsandbytes-"), keys.switch("bnb_4bit_use_double_quant"))
    return Quantization(name, activations, all_but(kept, format_))


def read_levels(keys: Keys, options: ModelOptions, names: TensorNames) -> Quantization:
    """Each linear has a table of its own, as `penstock quantize --method squeezellm` makes them."""
    check_known(keys, (METHOD, KEPT), ())
    activations = options.activations_for(keys, "levels of a table", are_whole=False)
    return Quantization("levels", activations, all_but(is_kept(keys, names, KEPT),
                                                       BitsAndBytes4(activations, "levels", is_double=False)))


def bitsandbytes_name(keys: Keys) -> str:
    """Returns the name of the format for --quantize."""
    if keys.switch("load_in_8bit") or keys.switch("_load_in_8bit"):
        return "bitsandbytes"
    kind = keys.get("bnb_4bit_quant_type", "fp4")
    if kind not in ("nf4", "fp4"):
        raise keys.error("bnb_4bit_quant_type", "nf4 or fp4")
    return f"bitsandbytes-{kind}"
