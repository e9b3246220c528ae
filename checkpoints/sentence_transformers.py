"""The files that sentence-transformers keeps beside a model: what is made of the vectors of a text's tokens, and what
is put before the text.

Launcher, router and shard read them, and none of them needs torch for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from penstock.checkpoints.sentence_modules import (
    Layer,
    LogitScoreModule,
    NormalizeModule,
    PoolingModule,
    SpladeModule,
    read_fields,
    read_modules,
)
from penstock.system.fields import Fields

OWN_CONFIG = "config_sentence_transformers.json"
TRANSFORMER_CONFIGS = tuple(f"sentence_{name}_config.json" for name in (
    "bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"))
MOST_TOKENS = 1 << 30                    # a tokenizer's number is above it where it means no limit
SCORE_ACTIVATIONS = ("identity", "sigmoid", "softmax")
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class SentenceTransformer:
    """Tells what the files say; the defaults are what absent ones say."""

    has_modules: bool = False
    pooling: PoolingModule | None = None
    layers: tuple[Layer, ...] = ()       # behind the pooling, but for what normalises in the end
    is_normalized: bool = False          # in the end
    splade: SpladeModule | None = None
    logit_score: LogitScoreModule | None = None
    max_seq_length: int | None = None    # tokens, special ones included
    do_lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: str = "cosine"
    truncate_dim: int | None = None


def read_sentence_transformer(directory: Path) -> SentenceTransformer:
    """Reads the files of a checkpoint's directory. Raises FileError, whose sentence names file, key and value."""
    own, modules = read_fields(directory / OWN_CONFIG), read_modules(directory)
    layers = [module for module in modules if isinstance(module, Layer)]
    is_normalized = bool(layers) and isinstance(layers[-1], NormalizeModule)
    sizes = next((fields for name in TRANSFORMER_CONFIGS if (fields := read_fields(directory / name))), None)
    prompts, default = _prompts(own)
    similarity = "cosine"
    if own is not None and own.get("similarity_fn_name") is not None:
        similarity = _one_of(own, "similarity_fn_name", SIMILARITIES)
    return SentenceTransformer(
        has_modules=bool(modules),
        pooling=_only(modules, PoolingModule), splade=_only(modules, SpladeModule),
        logit_score=_only(modules, LogitScoreModule),
        layers=tuple(layers[:-1] if is_normalized else layers), is_normalized=is_normalized,
        max_seq_length=_max_seq_length(directory, sizes, bool(modules)),
        do_lower_case=sizes is not None and sizes.switch("do_lower_case", False),
        prompts=prompts, default_prompt_name=default, similarity=similarity,
        truncate_dim=None if own is None or own.get("truncate_dim") is None else own.integer("truncate_dim", least=1))


def read_score_activation(directory: Path) -> str | None:
    """Returns the function, one of SCORE_ACTIVATIONS, that a cross-encoder's raw scores go through; None if no file
    names it. Raises FileError."""
    config, own = read_fields(directory / "config.json", max_values=None), read_fields(directory / OWN_CONFIG)
    places = [(own, "activation_fn"), (config, "sbert_ce_default_activation_function")]
    section = None if config is None else config.get("sentence_transformers")
    if config is not None and isinstance(section, dict):
        places.insert(0, (Fields(config.path, section), "activation_fn"))
    for fields, key in places:
        if fields is not None and fields.get(key) is not None:
            name = fields.text(key).rpartition(".")[2].lower()
            if name not in SCORE_ACTIVATIONS:
                raise fields.error(key, f"a class of torch, one of {', '.join(SCORE_ACTIVATIONS)}")
            return name
    return None


def _prompts(own: Fields | None) -> tuple[dict[str, str], str | None]:
    if own is None:
        return {}, None
    prompts = own.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise own.error("prompts", "an object of texts")
    prompts = {name: text or "" for name, text in prompts.items()}
    default = own.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise own.error("default_prompt_name", f"one of the prompts, {', '.join(prompts) or 'of which there are none'}")
    return prompts, default


def _max_seq_length(directory: Path, sizes: Fields | None, has_modules: bool) -> int | None:
    """Returns the most tokens that a text has: as the module's file says it, or the tokenizer's."""
    if sizes is not None and sizes.get("max_seq_length") is not None:
        return sizes.integer("max_seq_length", least=1)
    tokenizer = read_fields(directory / "tokenizer_config.json", 1 << 26, None) if has_modules else None
    found = None if tokenizer is None else tokenizer.get("model_max_length")
    return found if isinstance(found, int) and 0 < found < MOST_TOKENS else None


def _one_of(fields: Fields, key: str, names: Sequence[str]) -> str:
    if fields.get(key) not in names:
        raise fields.error(key, f"one of {', '.join(names)}")
    return fields.text(key)


def _only(modules: list[Any], kind: type[Kind]) -> Kind | None:
    return next((module for module in modules if isinstance(module, kind)), None)
