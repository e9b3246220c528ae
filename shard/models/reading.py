"""Reads the configuration of a checkpoint's model. Nothing else reads config.json."""

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from penstock.shard.models import families
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.encoder_config import EncoderConfig
from penstock.shard.models.end_tokens import end_tokens
from penstock.shard.models.families import ARCHITECTURES, ENCODERS, FAMILIES, NAMES, OF_IMAGES, Family
from penstock.shard.models.families.embedders import EMBEDDERS
from penstock.shard.models.keys import Keys, ModelConfigError
from penstock.shard.models.model import NATIVE
from penstock.shard.models.model_options import AS_STORED, PLAIN, ModelOptions, Quantization
from penstock.shard.models.parts import ExpertsLayout, Qkv
from penstock.shard.models.pooler_reading import read_pooler
from penstock.shard.models.quantization import KEY, read_weight_format
from penstock.shard.models.rotary_scaling import SHARE, THETA
from penstock.shard.models.rounding_methods import ROUNDINGS
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.stored import CheckpointError

DEFAULTS: dict[str, dict[str, Any]] = json.loads(files(families).joinpath("defaults.json").read_bytes())
"""By architecture, every key that a family reads: as transformers has it, or the authors of what that lacks. `python -m
tests.family_defaults` writes the file."""


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def read_model_config(directory: str | Path, options: ModelOptions = AS_STORED) -> ModelConfig:
    """Reads config.json, as transformers 4 and 5 write it, and which tokens end an answer.

    Raises ModelConfigError, also for options that contradict them.
    """
    keys = Keys.read(Path(directory) / "config.json")
    architecture, keys = _architecture(keys), decoder_keys(keys)
    family = ARCHITECTURES[architecture]
    if options.rope_scaling is not None:
        keys = _scaled(family, keys, options.rope_scaling, options.rope_factor)
    config = family(keys)
    if isinstance(config, EncoderConfig):
        config = _with_base(config, directory)
    quantization = read_weight_format(keys, options, config.names, isinstance(config, EncoderConfig))
    _check_places(keys, config, options, quantization)
    _check_attention(keys, config)
    pooler = read_pooler(Path(directory), keys, architecture, options, config)
    if pooler is not None and pooler.max_tokens is not None:
        config = replace(config, context_length=min(config.context_length, pooler.max_tokens))
    return replace(config, architecture=architecture, dtype=dtype_of(keys, directory), pooler=pooler,
                   eos_token_ids=end_tokens(keys, config.vocab_size) if architecture in FAMILIES else (),
                   quantization=quantization)


def decoder_keys(keys: Keys) -> Keys:
    """Returns the keys of a config.json that describe the decoder; those that are absent say what they do in
    transformers. Raises ModelConfigError for an architecture that is not known."""
    architecture = _architecture(keys)
    if architecture in OF_IMAGES:
        keys = keys.under("text_config")
    return keys.defaulting(DEFAULTS[EMBEDDERS.get(architecture, architecture)])


def is_native(directory: Path, options: ModelOptions) -> bool:
    """Tells whether decoder or encoder are to compute a checkpoint's model: they were asked to, or the architecture is
    known and nobody else was asked. Raises ModelConfigError."""
    if options.implementation != "auto":
        return options.implementation == NATIVE
    return is_known(Keys.read(directory / "config.json"))


def is_known(keys: Keys) -> bool:
    """Tells whether a config.json names an architecture that decoder or encoder compute."""
    return _is_in(ARCHITECTURES, keys)


def is_encoder(keys: Keys) -> bool:
    """Tells whether a config.json names an architecture that the encoder computes."""
    return _is_in(ENCODERS, keys)


def _is_in(families: Mapping[str, Family], keys: Keys) -> bool:
    names = keys.get("architectures")
    return isinstance(names, list) and len(names) == 1 and str(names[0]) in families


def _with_base(config: EncoderConfig, directory: str | Path) -> EncoderConfig:
    """Returns the config with the names that the checkpoint has: classes with a head put a word before all of them. The
    reader of files that cannot be read will say why."""
    ending = f"{config.names.embedding}.weight"
    try:
        found = [name for name in Checkpoint(directory).entries if f".{name}".endswith(f".{ending}")]
    except CheckpointError:
        return config
    base = min(found, key=len, default=ending).removesuffix(ending)
    return replace(config, names=config.names.under(base), base=base)


def _architecture(keys: Keys) -> str:
    if not is_known(keys):
        raise keys.error("architectures", f"one of {NAMES}")
    return str(keys.get("architectures")[0])


def _scaled(family: Family, keys: Keys, scaling: str, factor: float) -> Keys:
    """Returns the keys with a rotary scaling in place of their own, as TGI has it. Raises ModelConfigError if the
    family does not read it there."""
    rope = keys.section("rope_scaling", "rope_parameters")
    kept = {name: rope.get(name) for name in (THETA, SHARE) if rope.get(name) is not None}

    def scaled(scaling: str, factor: float) -> Keys:
        return keys.including({"rope_scaling": {**kept, "rope_type": scaling, "factor": factor}})

    if family(scaled("linear", 2.0)).rotations == family(scaled("linear", 4.0)).rotations:
        raise ModelConfigError(f"{keys.path}: --rope-scaling {scaling}: the model has no rotary embeddings, or such "
                               "whose scaling its layers do not have in common")
    return scaled(scaling, factor)


def _check_places(keys: Keys, config: ModelConfig, options: ModelOptions, quantization: Quantization) -> None:
    """Raises ModelConfigError for quantised weights that lie where no format is known to have them."""
    if quantization == PLAIN or options.quantize in ROUNDINGS:
        return
    if config.place.is_transposed:
        raise keys.error(KEY, f"none, for the linears of {config.names.blocks} are stored [inputs, outputs]")
    alone = (ExpertsLayout.APART, ExpertsLayout.ALTERNATING) if quantization.name == "mxfp4" else (ExpertsLayout.APART,)
    if config.experts is not None and config.experts.layout not in alone:
        raise keys.error(KEY, "none, for one tensor has the weights of all experts")


def _check_attention(keys: Keys, config: ModelConfig) -> None:
    """Raises ModelConfigError for tokens that see those behind them in a form that there is for causal ones alone."""
    attention = config.attention
    parts = {"a cap of its scores": attention.softcap, "ALiBi": attention.alibi, "sinks": attention.has_sinks,
             "a gate": attention.qkv is Qkv.GATED, "latent rows": attention.latent, "recurrences": config.recurrence}
    if not attention.is_causal and (found := [part for part, has_it in parts.items() if has_it]):
        raise keys.error("is_causal", f"true, the only one that is computed of attention with {found[0]}")


def dtype_of(keys: Keys, directory: str | Path) -> torch.dtype:
    """Returns the dtype that a configuration names, or that of the checkpoint's weights. Raises ModelConfigError."""
    key = "dtype" if keys.get("dtype") is not None else "torch_dtype"
    name = keys.get(key)
    if name is None:
        return _dtype_of_weights(directory)
    if str(name) not in DTYPES:
        raise keys.error(key, f"one of {', '.join(DTYPES)}")
    return DTYPES[str(name)]


def _dtype_of_weights(directory: str | Path) -> torch.dtype:
    """Returns the dtype of a checkpoint whose configuration does not say it, as transformers does; float32 for files
    that cannot be read, whose reader will say why."""
    try:
        return Checkpoint(directory).dtype
    except CheckpointError:
        return torch.float32
