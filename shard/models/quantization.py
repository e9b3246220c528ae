"""Which weight format the linears of a model are stored in or rounded to: what config.json's quantization_config says,
and what --quantize asks for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.shard.models.compressed_tensors import read_compressed_tensors
from penstock.shard.models.keys import Keys, ModelConfigError
from penstock.shard.models.model_options import INT8, PLAIN, ModelOptions, Quantization
from penstock.shard.models.names import TensorNames
from penstock.shard.models.quantization_methods import (
    METHOD,
    read_awq,
    read_bitsandbytes,
    read_fbgemm,
    read_float8,
    read_gguf,
    read_gptq,
    read_levels,
    read_mxfp4,
)
from penstock.shard.models.rounding_methods import ROUNDINGS, round_when_loaded

KEY = "quantization_config"
FIRST_KEY = "compression_config"         # what compressed-tensors' first files call it
OLD_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""AutoGPTQ's and AutoAWQ's own files, beside a config.json without quantization_config, and what they are of where they
do not say it."""
QUANTIZATIONS: dict[str, Callable[[Keys, ModelOptions, TensorNames], Quantization]] = {
    "awq": read_awq,
    "bitsandbytes": read_bitsandbytes,
    "compressed-tensors": read_compressed_tensors,
    "fbgemm_fp8": read_fbgemm,
    "fp8": read_float8,
    "gguf": read_gguf,
    "gptq": read_gptq,
    "mxfp4": read_mxfp4,
    "penstock-levels": read_levels,
}
"""By quant_method, the function that reads the rest of quantization_config."""
READS = {
    "awq": ("awq",), "gptq": ("gptq",), "marlin": ("gptq", "awq"), "compressed-tensors": ("compressed-tensors",),
    "fp8": ("fp8", "fbgemm_fp8"), "mxfp4": ("mxfp4",), "gguf": ("gguf",),
    **dict.fromkeys(("bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4"), ("bitsandbytes",)),
}
"""By --quantize, the quant_methods that it stands for."""
REFUSED = {"exl2": "there are only kernels for GPUs for its files, and not in this server; a GPTQ, AWQ or "
                   "compressed-tensors file of the same model can be read"}


def read_weight_format(
    keys: Keys, options: ModelOptions, names: TensorNames, is_encoder: bool = False
) -> Quantization:
    """Returns each linear's format. Raises ModelConfigError for unknown quantisations, and for options that contradict
    the checkpoint."""
    asked = options.quantize
    if asked in REFUSED:
        raise ModelConfigError(f"--quantize {asked}: {REFUSED[asked]}")
    section = section_of(keys)
    if section is None:
        return _of_plain_numbers(keys, options, names, is_encoder)
    method = str(section.get(METHOD, _method_of_old_file(section)))
    if method not in QUANTIZATIONS:
        raise keys.error(KEY, f"none, or a quant_method of {', '.join(sorted(QUANTIZATIONS))}")
    if asked is not None and method not in READS.get(asked, ()):
        raise ModelConfigError(f"{section.path}: --quantize {asked}, but the checkpoint's quant_method is {method}")
    return replace(QUANTIZATIONS[method](section, options, names), said=section.as_json())


def section_of(keys: Keys) -> Keys | None:
    """Returns the keys of the quantisation; None if there is none. Raises ModelConfigError."""
    key = KEY if keys.get(KEY) is not None else FIRST_KEY
    value: Any = keys.get(key)
    if value is None:
        old = (keys.path.with_name(name) for name in OLD_FILES)
        return next((Keys.read(path) for path in old if path.exists()), None)
    if not isinstance(value, dict) or not value:
        raise keys.error(key, f"none, or a quant_method of {', '.join(sorted(QUANTIZATIONS))}")
    return keys.section(key)


def _method_of_old_file(keys: Keys) -> str | None:
    """Returns the quant_method of an old file, whatever its name: AWQ's orders have names of their own."""
    is_awq = str(keys.get("version", "")).lower() in ("gemm", "gemv", "gemv_fast")
    return "awq" if is_awq else OLD_FILES.get(keys.path.name)


def _of_plain_numbers(keys: Keys, options: ModelOptions, names: TensorNames, is_encoder: bool) -> Quantization:
    if options.quantize in ROUNDINGS:
        return round_when_loaded(options.quantize, keys, options, names, is_encoder)
    if options.quantize is not None:
        raise ModelConfigError(
            f"{keys.path}: --quantize {options.quantize}, but the checkpoint is not quantised: there is no {KEY}; "
            f"{', '.join(ROUNDINGS)} are made of such a checkpoint when it is loaded")
    if options.activations == INT8:
        raise ModelConfigError(f"{keys.path}: --activations {INT8}: the checkpoint is not quantised; with --quantize "
                               "int8 or int4 it would be when it is loaded")
    return PLAIN
