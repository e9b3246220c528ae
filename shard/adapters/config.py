"""The content of an adapter's adapter_config.json, as PEFT writes it."""

import hashlib
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.shard.adapters.error import AdapterError
from penstock.system.json_objects import parse_object
from penstock.system.patterns import Pattern, PatternError, check_work
from penstock.system.regular_files import read_regular

log = logging.getLogger(__name__)

CONFIG_FILE = "adapter_config.json"
MAX_RANK = 256
MAX_ALPHA = 1e30                         # with which any rank has a scale that float32 holds
MAX_BYTES, MAX_VALUES = 1 << 20, 1 << 16
MAX_SHOWN = 80                           # characters of a value in a message

Patterns = tuple[tuple[Pattern, str, Any], ...]

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
    "use_qalora": "the grouped inputs of QALoRA are not served",
    "use_bdlora": "the blocks of BD-LoRA are not served",
    "arrow_config": "adapters that are chosen token by token (Arrow) are not served",
    "kasa_config": "the singular values of KaSA are not served",
    "monteclora_config": "the samples of Monteclora are not served"}
INITIAL = (None, True, False, "gaussian", "eva", "orthogonal", "mica")
"""How the matrices began, where the base's weights stayed what they were."""


@dataclass(frozen=True)
class AdapterConfig:
    """Tells the rank and the scale of the matrices of each module."""

    path: Path
    rank: int
    alpha: float
    is_by_root: bool                     # rank-stabilised (rsLoRA)
    ranks: Patterns                      # of modules whose names match
    alphas: Patterns

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
        for name, rank in (("r", config.rank), *((f"rank_pattern, {key:.80}", rank) for _, key, rank in ranks)):
            if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= MAX_RANK:
                raise AdapterError(f"{path}: {name} is {_shown(rank)}, it must be a whole number from 1 to {MAX_RANK}")
        for name, alpha in (("lora_alpha", config.alpha),
                            *((f"alpha_pattern, {key:.80}", alpha) for _, key, alpha in alphas)):
            if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not abs(alpha) <= MAX_ALPHA:
                raise AdapterError(f"{path}: {name} is {_shown(alpha)}, it must be a number, at most {MAX_ALPHA:g}")
        if not isinstance(values.get("use_rslora") or False, bool):
            raise AdapterError(f"{path}: use_rslora is {_shown(values['use_rslora'])}, it must be true or false")
        return config

    def rank_of(self, module: str) -> int:
        return int(_matching(self.ranks, module, self.rank))

    def scale_of(self, module: str) -> float:
        rank = self.rank_of(module)
        return float(_matching(self.alphas, module, self.alpha)) / (math.sqrt(rank) if self.is_by_root else rank)


def _read(path: Path, digest: str) -> dict[str, Any]:
    try:
        content = read_regular(path, MAX_BYTES)
        if digest and (found := hashlib.sha256(content).hexdigest()) != digest.lower():
            raise AdapterError(f"{path} has the SHA-256 {found}, expected {digest}: it has changed")
        return parse_object(content, MAX_VALUES)
    except FileNotFoundError as error:
        raise AdapterError(f"{path} does not exist: an adapter is a folder as PEFT saves it") from error
    except OSError as error:
        raise AdapterError(f"{path} cannot be read: {error.strerror}") from error
    except AdapterError:
        raise
    except ValueError as error:
        raise AdapterError(f"{path} cannot be read: {error}") from error


def _refuse(path: Path, values: Mapping[str, Any]) -> None:
    """Raises AdapterError for what would change what the adapter computes, and is not served. Like PEFT it passes keys
    that it does not know, as of a library's own version, and tells of them."""
    if values.get("peft_type") != "LORA":
        raise AdapterError(f"{path}: peft_type is {_shown(values.get('peft_type'))}, only LORA is served")
    if values.get("bias", "none") not in (None, "none"):
        raise AdapterError(f"{path}: bias is {_shown(values['bias'])}, only none is served: biases stay the base's")
    if values.get("init_lora_weights", True) not in INITIAL:
        raise AdapterError(f"{path}: init_lora_weights is {_shown(values['init_lora_weights'])}: such an adapter "
                           "belongs to other weights than the base's; PEFT's save_pretrained converts it with "
                           "path_initial_model_for_weight_conversion")
    for key, reason in REFUSED.items():
        if values.get(key):
            raise AdapterError(f"{path}: {key} is {_shown(values[key])}: {reason}")
    unknown = sorted(key for key, value in values.items() if value and key not in WITHOUT_EFFECT | READ)
    if unknown:
        log.warning("%s: keys that PEFT's LoRA does not have are ignored: %.500s", path, ", ".join(unknown))


def _shown(value: object) -> str:
    return f"{value!r:.{MAX_SHOWN}}"


def _patterns(path: Path, values: Mapping[str, Any], key: str) -> Patterns:
    """Returns the numbers of modules by the patterns of their names, which PEFT puts behind any beginning."""
    given = values.get(key) or {}
    if not isinstance(given, dict):
        raise AdapterError(f"{path}: {key} is no object of names and numbers")
    try:
        check_work(given)
    except PatternError as error:
        raise AdapterError(f"{path}: {key} is too much: {error}") from error
    found = []
    for name, number in given.items():
        try:
            found.append((Pattern(rf"(.*\.)?({name})$"), name, number))
        except PatternError as error:
            raise AdapterError(f"{path}: {key} has the name {_shown(name)}, a pattern that can't be used: {error}"
                               ) from error
    return tuple(found)


def _matching(patterns: Patterns, module: str, default: Any) -> Any:
    """Returns the first number whose pattern a module's name matches, as PEFT finds it."""
    return next((number for pattern, _, number in patterns if pattern.matches(module)), default)
