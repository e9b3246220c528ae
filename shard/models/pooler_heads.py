"""The layers that transformers' classes put behind an encoder or a decoder: scores of labels, and logits of masked
tokens."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.shard.models.families.embedders import BASES
from penstock.shard.models.families.usual import ACTIVATIONS
from penstock.shard.models.keys import Keys
from penstock.shard.models.pooler_config import LAST, HeadLayer

CLASSES, MASKED = "ForSequenceClassification", "ForMaskedLM"
DISTILBERT_EPS = 1e-12                   # which no key says


@dataclass(frozen=True, slots=True)
class Head:
    """Says which tokens a head reads, and by which layers."""

    poolings: tuple[str, ...]
    layers: tuple[HeadLayer, ...]
    of_tokens: tuple[HeadLayer, ...] = ()  # before the pooling


TANH = "tanh"

Reader = Callable[[Keys, str, int, int], Head]
"""Takes the keys of config.json, what the checkpoint puts before the encoder's names, the hidden size, and how many
scores or logits there are."""


def _activation(keys: Keys, key: str, usual: str = "gelu") -> str:
    name = keys.get(key) or usual
    if not isinstance(name, str) or name not in (TANH, *ACTIVATIONS):
        raise keys.error(key, f"one of {', '.join((TANH, *ACTIVATIONS))}")
    return name


def _pooled(activation: str) -> Reader:
    def read(keys: Keys, base: str, size: int, count: int) -> Head:
        """Reads the first token through the pooler, which belongs to the encoder."""
        own = _activation(keys, "pooler_hidden_act", activation)
        return Head(("cls",), (HeadLayer(f"{base}pooler.dense", size, own), HeadLayer("classifier", count)))
    return read


def _deberta(keys: Keys, base: str, size: int, count: int) -> Head:
    """Its pooler stands beside the encoder, not in it."""
    own = _activation(keys, "pooler_hidden_act")
    return Head(("cls",), (HeadLayer("pooler.dense", size, own), HeadLayer("classifier", count)))


def _roberta(keys: Keys, base: str, size: int, count: int) -> Head:
    return Head(("cls",), (HeadLayer("classifier.dense", size, TANH), HeadLayer("classifier.out_proj", count)))


def _distilbert(keys: Keys, base: str, size: int, count: int) -> Head:
    return Head(("cls",), (HeadLayer("pre_classifier", size, "relu"), HeadLayer("classifier", count)))


def _modernbert(keys: Keys, base: str, size: int, count: int) -> Head:
    pooling = keys.get("classifier_pooling") or "cls"
    if pooling not in ("cls", "mean"):
        raise keys.error("classifier_pooling", "cls or mean")
    return Head((pooling,), (_modernbert_transform(keys, size), HeadLayer("classifier", count)))


def _modernbert_transform(keys: Keys, size: int) -> HeadLayer:
    return HeadLayer("head.dense", size, _activation(keys, "classifier_activation"), "head.norm",
                     keys.number("norm_eps", 1e-5))


def _eurobert(keys: Keys, base: str, size: int, count: int) -> Head:
    """Reads the first token, or the mean, or the mean of what every token is made into."""
    dense, scores = HeadLayer("dense", size, "gelu"), HeadLayer("classifier", count)
    pooling = keys.get("classifier_pooling")
    if pooling == "late":
        return Head(("mean",), (scores,), (dense,))
    if pooling not in ("bos", "mean"):
        raise keys.error("classifier_pooling", "bos, mean or late")
    return Head(("mean" if pooling == "mean" else "cls",), (dense, scores))


def _decoder(keys: Keys, base: str, size: int, count: int) -> Head:
    return Head(LAST, (HeadLayer("score", count),))


SCORES: dict[str, Reader] = {
    **dict.fromkeys(("Bert", "Gte", "New", "NomicBert"), _pooled(TANH)),
    **dict.fromkeys(("Roberta", "XLMRoberta", "Camembert", "MPNet"), _roberta),
    "DistilBert": _distilbert, "ModernBert": _modernbert, "EuroBert": _eurobert, "DebertaV2": _deberta,
    **dict.fromkeys(BASES, _decoder)}
"""By what the names of architectures begin with, the heads that score."""


def _masked_bert(norm: str) -> Reader:
    def read(keys: Keys, base: str, size: int, count: int) -> Head:
        transform = "cls.predictions.transform"
        return Head((), (
            HeadLayer(f"{transform}.dense", size, _activation(keys, "hidden_act"), f"{transform}.{norm}",
                      keys.number("layer_norm_eps", 1e-12)),
            HeadLayer("cls.predictions.decoder", count, bias="cls.predictions.bias")))
    return read


def _masked_roberta(norm: str) -> Reader:
    def read(keys: Keys, base: str, size: int, count: int) -> Head:
        return Head((), (
            HeadLayer("lm_head.dense", size, "gelu", f"lm_head.{norm}", keys.number("layer_norm_eps", 1e-5)),
            HeadLayer("lm_head.decoder", count, bias="lm_head.bias")))
    return read


def _masked_distilbert(keys: Keys, base: str, size: int, count: int) -> Head:
    return Head((), (
        HeadLayer("vocab_transform", size, _activation(keys, "activation"), "vocab_layer_norm", DISTILBERT_EPS),
        HeadLayer("vocab_projector", count)))


def _masked_modernbert(keys: Keys, base: str, size: int, count: int) -> Head:
    return Head((), (_modernbert_transform(keys, size), HeadLayer("decoder", count)))


def _masked_eurobert(keys: Keys, base: str, size: int, count: int) -> Head:
    return Head((), (HeadLayer("lm_head", count),))


_LAYER_NORM = _masked_roberta("layer_norm")
VOCABULARIES: dict[str, Reader] = {
    "Bert": _masked_bert("LayerNorm"), "NomicBert": _masked_bert("layer_norm"), "EuroBert": _masked_eurobert,
    "Gte": _masked_roberta("norm"), "Roberta": _LAYER_NORM, "XLMRoberta": _LAYER_NORM, "Camembert": _LAYER_NORM,
    "MPNet": _LAYER_NORM, "DistilBert": _masked_distilbert, "ModernBert": _masked_modernbert}
"""The same, with the heads that make logits of masked tokens."""
