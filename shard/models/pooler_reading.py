"""Decides which vectors and scores are made with a checkpoint: as its files say, or the user does."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import orjson

from penstock.checkpoints.sentence_modules import POOLINGS, DenseModule, SpladeModule
from penstock.checkpoints.sentence_transformers import (
    SentenceTransformer,
    read_score_activation,
    read_sentence_transformer,
)
from penstock.contract.pooling import Task
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families import ENCODERS, FAMILIES
from penstock.shard.models.keys import Keys, ModelConfigError
from penstock.shard.models.model_options import ModelOptions
from penstock.shard.models.pooler_config import LAST, PoolerConfig
from penstock.shard.models.pooler_heads import CLASSES, MASKED, SCORES, VOCABULARIES, Reader
from penstock.system.fields import FileError

VECTORS = (Task.EMBED, Task.EMBED_ALL)
SPLADE = "splade"
POOLING_NAMES = (*POOLINGS, SPLADE)
MAX_LABELS = 1 << 20
ANSWERS = (("yes", "no"), ("Yes", "No"), ("▁yes", "▁no"), ("▁Yes", "▁No"))
"""The tokens by which models that were taught to answer say whether a document fits."""


def read_pooler(
    directory: Path, keys: Keys, architecture: str, options: ModelOptions, config: ModelConfig
) -> PoolerConfig | None:
    """Returns the way from texts' tokens to vectors or scores; None of a model that continues texts. Raises
    ModelConfigError."""
    try:
        files = read_sentence_transformer(directory)
        task = options.task or _task(architecture, files)
        if options.pooling == SPLADE and task == "embed":
            files = replace(files, splade=files.splade or SpladeModule())
        pooler = {"generate": _generate, "embed": _embed, "classify": _classify, "rerank": _rerank}[task](
            directory, keys, architecture, files, config)
        pooler = _with_pooling(directory, pooler, options)
        return None if pooler is None else replace(pooler, max_tokens=files.max_seq_length)
    except FileError as error:
        raise ModelConfigError(str(error)) from error


def _task(architecture: str, files: SentenceTransformer) -> str:
    if architecture.endswith(CLASSES):
        return "classify"
    if architecture in FAMILIES:
        return "embed" if files.pooling else "rerank" if files.logit_score else "generate"
    return "embed"


def _generate(
    directory: Path, keys: Keys, architecture: str, files: SentenceTransformer, config: ModelConfig
) -> None:
    if architecture not in FAMILIES:
        raise keys.error("architectures", f"one that continues texts, for --task generate: {', '.join(FAMILIES)}")
    if not config.attention.is_causal:
        raise ModelConfigError(f"{directory}: --task generate: each token of the model sees those behind it, so that "
                               "it continues no text; leave out --task")


def _embed(
    directory: Path, keys: Keys, architecture: str, files: SentenceTransformer, config: ModelConfig
) -> PoolerConfig:
    if files.splade is not None:
        read = _reader(VOCABULARIES, architecture, MASKED)
        if read is None:
            raise keys.error("architectures", "one that says what masked tokens are, for sparse vectors: "
                                              f"{', '.join(f'{name}{MASKED}' for name in VOCABULARIES)}")
        head = read(keys, _base(config), config.hidden_size, config.vocab_size)
        return PoolerConfig((Task.EMBED_SPARSE,), splade=files.splade, vocabulary=head.layers)
    usual = ("mean",) if architecture in ENCODERS or not config.attention.is_causal else LAST
    poolings = files.pooling.poolings if files.pooling else usual
    width = config.hidden_size * len(poolings)
    for layer in files.layers:
        if isinstance(layer, DenseModule):
            if layer.in_features != width:
                raise ModelConfigError(f"{layer.folder / 'config.json'}: in_features: expected {width}, the numbers of "
                                       f"the vector before it, found {layer.in_features}")
            width = layer.out_features
    return PoolerConfig(VECTORS, poolings, files.layers)


def _classify(
    directory: Path, keys: Keys, architecture: str, files: SentenceTransformer, config: ModelConfig
) -> PoolerConfig:
    read = _reader(SCORES, architecture, CLASSES)
    if read is None:
        raise keys.error("architectures", "one with a head that scores texts: "
                                          f"{', '.join(f'{name}{CLASSES}' for name in SCORES)}")
    labels = _labels(keys)
    head = read(keys, _base(config), config.hidden_size, len(labels))
    is_several = keys.get("problem_type") == "multi_label_classification"
    usual = "sigmoid" if is_several or len(labels) == 1 else "softmax"
    scores_last = head.poolings == LAST and config.attention.is_causal
    return PoolerConfig((Task.CLASSIFY,), head.poolings, of_tokens=head.of_tokens, head=head.layers, labels=labels,
                        activation=read_score_activation(directory) or usual,
                        pad_tokens=_pad_tokens(keys) if scores_last else ())


def _rerank(
    directory: Path, keys: Keys, architecture: str, files: SentenceTransformer, config: ModelConfig
) -> PoolerConfig:
    if architecture not in FAMILIES:
        pooler = _classify(directory, keys, architecture, files, config)
        if len(pooler.labels) != 1:
            raise ModelConfigError(f"{directory}: --task rerank: the model has {len(pooler.labels)} labels, and ranks "
                                   "are made of one score; leave out --task")
        return pooler
    if files.logit_score is not None:
        other = files.logit_score.false_token
        tokens = (files.logit_score.true_token,) + (() if other is None else (other,))
    else:
        tokens = _answers(directory, keys)
    if beyond := [token for token in tokens if token >= config.vocab_size]:
        raise ModelConfigError(f"{directory}: the token {beyond[0]} scores texts, and the model has "
                               f"{config.vocab_size} tokens")
    return PoolerConfig((Task.CLASSIFY,), LAST, score_tokens=tokens, labels=("LABEL_0",),
                        activation=read_score_activation(directory) or "sigmoid")


def _with_pooling(directory: Path, pooler: PoolerConfig | None, options: ModelOptions) -> PoolerConfig | None:
    """Returns the same with the pooling that the user names."""
    if options.pooling in (None, SPLADE):
        if options.pooling == SPLADE and (pooler is None or pooler.splade is None):
            raise ModelConfigError(f"{directory}: --pooling {SPLADE}: the model makes no vectors")
        return pooler
    if pooler is None or Task.EMBED not in pooler.tasks:
        raise ModelConfigError(f"{directory}: --pooling {options.pooling}: the model makes no vectors of the tokens' "
                               "vectors; leave it out")
    if any(isinstance(layer, DenseModule) for layer in pooler.layers) and len(pooler.poolings) > 1:
        raise ModelConfigError(f"{directory}: --pooling {options.pooling}: the layer behind takes {pooler.name}")
    return replace(pooler, poolings=(str(options.pooling),))


def _pad_tokens(keys: Keys) -> tuple[int, ...]:
    """Returns the token that fills texts up, behind the one by which transformers' decoders score them, if there is
    one."""
    number = keys.get("pad_token_id")
    return (number,) if isinstance(number, int) and number >= 0 else ()


def _labels(keys: Keys) -> tuple[str, ...]:
    """Returns the names of the labels, by their numbers."""
    named = keys.get("id2label")
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(keys.integer("num_labels", 2, most=MAX_LABELS)))
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
        raise keys.error("id2label", "an object of texts, by the labels' numbers")
    if sorted(named, key=lambda number: (len(number), number)) != [str(number) for number in range(len(named))]:
        raise keys.error("id2label", f"the numbers from 0 to {len(named) - 1}, each with a label")
    if not named:
        raise keys.error("id2label", "a label at least")
    return tuple(named[str(number)] for number in range(len(named)))


def _answers(directory: Path, keys: Keys) -> tuple[int, ...]:
    """Returns the numbers of the tokens that say yes and no."""
    path = directory / "tokenizer.json"
    said = keys.get("classifier_from_token")  # no, then yes
    if said is not None and (not isinstance(said, list) or len(said) != 2):
        raise keys.error("classifier_from_token", "a list of 2 tokens, the second of which says yes")
    try:
        tokens = orjson.loads(path.read_bytes())["model"]["vocab"]
        numbers = tokens if isinstance(tokens, dict) else {token: number for number, (token, *_) in enumerate(tokens)}
        for yes, no in [(said[1], said[0])] if said else ANSWERS:
            if yes in numbers and no in numbers:
                return int(numbers[yes]), int(numbers[no])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ModelConfigError(f"{path}: --task rerank needs the numbers of the tokens that say yes and no, and they "
                               f"cannot be read: {error!r}") from error
    raise ModelConfigError(f"{path}: --task rerank: there are no tokens that say yes and no: classifier_from_token in "
                           "config.json names them, no first")


def _reader(readers: Mapping[str, Reader], architecture: str, kind: str) -> Reader | None:
    return readers.get(architecture.removesuffix(kind)) if architecture.endswith(kind) else None


def _base(config: ModelConfig) -> str:
    """Returns the prefix of the names of an encoder's layers in the checkpoint."""
    return str(getattr(config, "base", ""))
