"""The content of an adapter's adapter_config.json, as PEFT writes it."""

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.checkpoints.adapter_files import CONFIG, REFUSED, read_config, shown
from penstock.system.fields import FileError
from penstock.system.patterns import Pattern, PatternError, check_work

log = logging.getLogger(__name__)

MAX_RANK = 256
MAX_ALPHA = 1e30                         # with which any rank has a scale that float32 holds

Patterns = tuple[tuple[Pattern, str, Any], ...]

WITHOUT_EFFECT = frozenset((
    "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
    "target_modules", "exclude_modules", "lora_dropout", "fan_in_fan_out", "layers_to_transform", "layers_pattern",
    "loftq_config", "eva_config", "corda_config", "lora_ga_config", "velora_config", "runtime_config",
    "megatron_config", "megatron_core", "qalora_group_size", "ensure_weight_tying"))
"""Keys that matter in training alone, or say what the tensors' names and shapes say too."""
READ = frozenset(("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias",
                  "init_lora_weights"))


@dataclass(frozen=True)
class AdapterConfig:
    """Tells the rank and the scale of the matrices of each module."""

    path: Path
    rank: int
    alpha: float
    is_by_root: bool                     # rank-stabilised (rsLoRA)
    ranks: Patterns                      # of modules whose names match
    alphas: Patterns
    digest: bytes                        # SHA-256 of the file

    @classmethod
    def read(cls, directory: Path) -> "AdapterConfig":
        """Reads an adapter's configuration. Raises FileError as `read_config` does, and for numbers that can't be used.
        Like PEFT it passes keys that it does not know, as of a library's own version, and tells of them."""
        path, (values, digest) = directory / CONFIG, read_config(directory)
        unknown = sorted(key for key, value in values.items()
                         if value and key not in WITHOUT_EFFECT | READ | REFUSED.keys())
        if unknown:
            log.warning("%s: keys that PEFT's LoRA does not have are ignored: %.500s", path, ", ".join(unknown))
        ranks, alphas = (_patterns(path, values, key) for key in ("rank_pattern", "alpha_pattern"))
        config = cls(path, values.get("r", 8), values.get("lora_alpha", 8), bool(values.get("use_rslora")), ranks,
                     alphas, digest)
        for name, rank in (("r", config.rank), *((f"rank_pattern, {key:.80}", rank) for _, key, rank in ranks)):
            if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= MAX_RANK:
                raise FileError(path, f"{name} is {shown(rank)}, it must be a whole number from 1 to {MAX_RANK}")
        for name, alpha in (("lora_alpha", config.alpha),
                            *((f"alpha_pattern, {key:.80}", alpha) for _, key, alpha in alphas)):
            if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not abs(alpha) <= MAX_ALPHA:
                raise FileError(path, f"{name} is {shown(alpha)}, it must be a number, at most {MAX_ALPHA:g}")
        if not isinstance(values.get("use_rslora") or False, bool):
            raise FileError(path, f"use_rslora is {shown(values['use_rslora'])}, it must be true or false")
        return config

    def rank_of(self, module: str) -> int:
        return int(_matching(self.ranks, module, self.rank))

    def scale_of(self, module: str) -> float:
        rank = self.rank_of(module)
        return float(_matching(self.alphas, module, self.alpha)) / (math.sqrt(rank) if self.is_by_root else rank)


def _patterns(path: Path, values: dict[str, Any], key: str) -> Patterns:
    """Returns the numbers of modules by the patterns of their names, which PEFT puts behind any beginning."""
    given = values.get(key) or {}
    if not isinstance(given, dict):
        raise FileError(path, f"{key} is no object of names and numbers")
    try:
        check_work(given)
    except PatternError as error:
        raise FileError(path, f"{key} is too much: {error}") from error
    found = []
    for name, number in given.items():
        try:
            found.append((Pattern(rf"(.*\.)?({name})$"), name, number))
        except PatternError as error:
            raise FileError(path, f"{key} has the name {shown(name)}, a pattern that can't be used: {error}"
                               ) from error
    return tuple(found)


def _matching(patterns: Patterns, module: str, default: Any) -> Any:
    """Returns the first number whose pattern a module's name matches, as PEFT finds it."""
    return next((number for pattern, _, number in patterns if pattern.matches(module)), default)
