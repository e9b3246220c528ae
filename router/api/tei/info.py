"""The route that tells of a model that makes vectors or scores: `GET /info`, with TEI's fields."""

from typing import Any

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router.generation.service import Service
from penstock.router.generation.tasks import reranks


def describe(service: Service) -> dict[str, Any]:
    """Returns TEI's fields, and those of ours that say how numbers are computed."""
    limits, facts, info = service.limits, service.facts, service.info
    return {
        "model_id": info.model_id,
        "model_sha": info.model_sha,
        "model_dtype": facts.dtype,
        "served_model_name": info.model_id,
        "model_type": {kind_of(facts): _kind(facts)},
        "max_concurrent_requests": limits.max_concurrent_requests,
        "max_input_length": limits.max_input_tokens,
        "max_batch_tokens": limits.max_batch_prefill_tokens,
        "max_batch_requests": limits.max_slots,
        "max_client_batch_size": limits.max_client_batch_size,
        "auto_truncate": service.texts.truncates,
        "tokenization_workers": limits.validation_workers,
        "version": info.version,
        "sha": None,
        "docker_label": None,
        "model_device_type": "cuda" if facts.has_gpus else "cpu",
        "vector_size": facts.vector_size,
        "numerics": facts.numerics,
        "deterministic": facts.is_deterministic,
        "model_implementation": facts.implementation,
    }


def kind_of(facts: Facts) -> str:
    """Returns TEI's word for what a model is."""
    if reranks(facts):
        return "reranker"
    return "classifier" if Task.CLASSIFY in facts.tasks else "embedding"


def _kind(facts: Facts) -> dict[str, Any]:
    if Task.CLASSIFY not in facts.tasks:
        return {"pooling": facts.pooling}
    return {"id2label": {str(number): label for number, label in enumerate(facts.labels)},
            "label2id": {label: number for number, label in enumerate(facts.labels)}}
