"""What an adapter's adapter_config.json says, as PEFT writes it."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.shard.adapters.error import AdapterError

CONFIG_FILE = "adapter_config.json"
MAX_RANK = 256
MAX_ALPHA = 1e30                         # with which any rank has a scale that float32 holds
MAX_BYTES = 1 << 20
MAX_REPEATS = 4                          # in the pattern of a name: a search with more could take very long

WITHOUT_EFFECT = frozenset((
    "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
    "target_modules", "exclude_modules", "lora_dropout", "fan_in_fan_out", "layers_to_transform", "layers_pattern",
    "loftq_config", "eva_config", "corda_config", "lora_ga_config", "velora_config", "runtime_config",
    "megatron_config", "megatron_core", "qalora_group_size", "ensure_weight_tying"))
"""Keys that matter in training alone, or say what the tensors' names and shapes say too."""
READ = frozenset(("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias",
                  "init_lora_weights"))
REFUSED = {
    "use_dora": "the magnitudes of DoRA are not served",
    "modules_to_save": "modules that were trained whole are not served",
    "lora_bias": "biases of adapters are not served",
    "trainable_token_indices": "tokens that were trained are not served",
    "layer_replication": "layers that are run several times are not served",
    "alora_invocation_tokens": "adapters that begin within a prompt (aLoRA) are not served",
    "target_parameters": "adapters of bare parameters are not served",
    "use_qalora": "the grouped inputs of QALoRA are not served"}
INITIAL = (None, True, False, "gaussian", "eva", "orthogonal")
"""How the matrices began, where the base's weights stayed what they were."""


@dataclass(frozen=True)
class AdapterConfig:
    """Tells the rank and the scale of the matrices of each module."""

    path: Path
    rank: int
    alpha: float
    is_by_root: bool                     # rank-stabilised (rsLoRA)
    ranks: Mapping[str, int]             # of modules whose names match
    alphas: Mapping[str, float]

    @classmethod
    def read(cls, directory: Path, digest: str = "") -> "AdapterConfig":
        """Raises AdapterError for a file that can't be read, or has another SHA-256 than `digest`, if that is not
        empty, and for whatever is not served."""
        path = directory / CONFIG_FILE
        values = _read(path, digest)
        _refuse(path, values)
        ranks, alphas = (_patterns(path, values, key) for key in ("rank_pattern", "alpha_pattern"))
        config = cls(path, values.get("r", 8), values.get("lora_alpha", 8), bool(values.get("use_rslora")), ranks,
                     alphas)
        for name, rank in (("r", config.rank), *((f"rank_pattern, {key}", rank) for key, rank in ranks.items())):
            if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= MAX_RANK:
                raise AdapterError(f"{path}: {name} is {rank}, it must be a whole number from 1 to {MAX_RANK}")
        for name, alpha in (("lora_alpha", config.alpha),
                            *((f"alpha_pattern, {key}", alpha) for key, alpha in alphas.items())):
            if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not abs(alpha) <= MAX_ALPHA:
                raise AdapterError(f"{path}: {name} is {str(alpha)[:80]}, it must be a number, at most {MAX_ALPHA:g}")
        if not isinstance(values.get("use_rslora") or False, bool):
            raise AdapterError(f"{path}: use_rslora is {values['use_rslora']!r}, it must be true or false")
        return config

    def rank_of(self, module: str) -> int:
        return int(_matching(self.ranks, module, self.rank))

    def scale_of(self, module: str) -> float:
        rank = self.rank_of(module)
        return float(_matching(self.alphas, module, self.alpha)) / (math.sqrt(rank) if self.is_by_root else rank)


def _read(path: Path, digest: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise AdapterError(f"{path} has more than {MAX_BYTES} bytes")
        if digest and (found := hashlib.sha256(content).hexdigest()) != digest.lower():
            raise AdapterError(f"{path} has the SHA-256 {found}, expected {digest}: it has changed")
        values = json.loads(content)
    except FileNotFoundError as error:
        raise AdapterError(f"{path} does not exist: an adapter is a folder as PEFT saves it") from error
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, AdapterError):
            raise
        raise AdapterError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise AdapterError(f"{path} holds no object of keys and values")
    return values


def _refuse(path: Path, values: Mapping[str, Any]) -> None:
    if values.get("peft_type") != "LORA":
        raise AdapterError(f"{path}: peft_type is {values.get('peft_type')!r}, only LORA is served")
    if values.get("bias", "none") not in (None, "none"):
        raise AdapterError(f"{path}: bias is {str(values['bias'])[:80]!r}, only none is served: biases stay the base's")
    if values.get("init_lora_weights", True) not in INITIAL:
        raise AdapterError(f"{path}: init_lora_weights is {values['init_lora_weights']!r}: such an adapter belongs to "
                           "other weights than the base's; PEFT's save_pretrained converts it with "
                           "path_initial_model_for_weight_conversion")
    for key, value in values.items():
        if not value or key in WITHOUT_EFFECT or key in READ:
            continue
        reason = REFUSED.get(key, "this key is not known, and might change what the adapter computes")
        raise AdapterError(f"{path}: {key} is {str(value)[:80]}: {reason}")


def _patterns(path: Path, values: Mapping[str, Any], key: str) -> dict[str, Any]:
    patterns = values.get(key) or {}
    if not isinstance(patterns, dict):
        raise AdapterError(f"{path}: {key} is no object of names and numbers")
    for name in patterns:
        repeats = len(re.findall(r"[*+?{]", name))
        if repeats > MAX_REPEATS or re.search(r"\)[*+?{]", name):
            raise AdapterError(f"{path}: {key} has the name {name[:80]!r}, a pattern of too many repetitions")
        try:
            re.compile(name)
        except re.error as error:
            raise AdapterError(f"{path}: {key} has the name {name[:80]!r}, which is no pattern: {error}") from error
    return patterns


def _matching(values: Mapping[str, Any], module: str, default: Any) -> Any:
    """Returns the first value whose name a module's name ends with, as PEFT finds it."""
    return next((value for name, value in values.items() if re.match(rf"(.*\.)?({name})$", module)), default)
