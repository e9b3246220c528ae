"""Metadata of the server and its models, and Triton's configuration and index of them."""

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.contract.pooling import Task
from penstock.router.api.kserve import generation, pooling
from penstock.router.api.kserve.inference import IDS, MASK, QUERY, SETTINGS, TEXT, TEXTS
from penstock.router.api.kserve.models import Named, versions_of
from penstock.router.errors import ValidationError
from penstock.router.generation.service import Service
from penstock.router.generation.services import Listed, Services
from penstock.router.generation.tasks import reranks
from penstock.router.metrics.triton import statistics
from penstock.router.versions import split_version
from penstock.system import release

PLATFORM, READY = "penstock", "READY"
EXTENSIONS = ["binary_tensor_data", "generate", "model_configuration", "model_repository", "parameters", "statistics"]
"""Triton's extensions of the protocol that are there."""
Shape = tuple[str, str, list[int], bool]
"""The name of a tensor, its datatype, its shape, in which -1 stands for any number, and whether it may be absent."""


def server() -> dict[str, Any]:
    """Returns the metadata of the server."""
    return {"name": PLATFORM, "version": release.VERSION, "extensions": EXTENSIONS}


def model(named: Named, services: Services) -> dict[str, Any]:
    """Returns the metadata of a model."""
    inputs, outputs = shapes(named.service)
    versions = versions_of(services, split_version(named.name)[0]) or [named.version]
    return {"name": named.name, "versions": versions, "platform": PLATFORM,
            "inputs": [_described(shape) for shape in inputs], "outputs": [_described(shape) for shape in outputs]}


def shapes(service: Service) -> tuple[Sequence[Shape], Sequence[Shape]]:
    """Returns the inputs and outputs of a model."""
    facts = service.facts
    if Task.GENERATE in facts.tasks:
        inputs = [(TEXT, "BYTES", [-1], True), (IDS, "INT32", [-1], True), ("stream", "BOOL", [1], True),
                  (SETTINGS, "BYTES", [1], True), ("exclude_input_in_output", "BOOL", [1], True)]
        return inputs, [(name, datatype, [-1], True) for name, datatype in generation.OUTPUTS.items()]
    if reranks(facts):
        return [(QUERY, "BYTES", [1], False), (TEXTS, "BYTES", [-1], False)], [(pooling.SCORES, "FP32", [-1, 1], False)]
    texts = [(TEXT, "BYTES", [-1], True), (IDS, "INT64", [-1, -1], True), (MASK, "INT64", [-1, -1], True)]
    if Task.CLASSIFY in facts.tasks:
        return texts, [(pooling.SCORES, "FP32", [-1, len(facts.labels)], False)]
    return texts, [(pooling.EMBEDDING, "FP32", [-1, service.texts.dimensions or facts.vector_size], False)]


def config(named: Named) -> dict[str, Any]:
    """Returns the configuration of a model, as Triton has it."""
    inputs, outputs = shapes(named.service)
    return {
        "name": named.name, "platform": PLATFORM, "backend": PLATFORM,
        "version_policy": {"latest": {"num_versions": 1}}, "max_batch_size": 0,
        "input": [{"name": name, "data_type": _data_type(datatype), "dims": dims, "optional": is_optional}
                  for name, datatype, dims, is_optional in inputs],
        "output": [{"name": name, "data_type": _data_type(datatype), "dims": dims}
                   for name, datatype, dims, _ in outputs],
        "model_transaction_policy": {"decoupled": Task.GENERATE in named.service.facts.tasks},
    }


def index(models: Iterable[Listed], only_ready: bool) -> list[dict[str, str]]:
    """Returns the models with their states, or those that are ready."""
    entries = [_indexed(each) for each in models]
    return [each for each in entries if each["state"] == READY or not only_ready]


def _indexed(model: Listed) -> dict[str, str]:
    name, version = split_version(model.name)
    state, reason = READY, ""
    if model.state in ("loading", "unloading"):
        state = model.state.upper()
    elif model.service is None and not (model.steps and model.state == "ready"):
        state, reason = "UNAVAILABLE", model.state or ""
    elif model.service is not None and not Named(model.service, name).is_ready:
        state, reason = "UNAVAILABLE", "the shards are being started"
    return {"name": name, "version": version, "state": state, "reason": reason}


def stats(models: Sequence[Named]) -> dict[str, Any]:
    """Returns the statistics of models, which count the requests of all routes."""
    return {"model_stats": [_stats(each) for each in models]}


def _stats(named: Named) -> dict[str, Any]:
    found = statistics(named.service.metrics.gathered())
    return {
        "name": named.name, "version": named.version, "inference_count": found.inferences,
        "execution_count": found.executions,
        "inference_stats": {
            "success": _duration(found.successes, found.total_seconds),
            "fail": _duration(sum(found.failures.values()), 0.0),
            "queue": _duration(found.inferences, found.queue_seconds),
            "compute_input": _duration(found.inferences, found.input_seconds),
            "compute_infer": _duration(found.inferences, found.compute_seconds)},
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": int(seconds * 1_000_000_000)}


def check_parameters(names: Iterable[str]) -> None:
    """Checks the names of a request's parameters to load or unload a model. Raises ValidationError."""
    for name in names:
        if name != "unload_dependents":
            raise ValidationError(f"`parameters` can't have `{name:.100}`: a model is as the server was "
                                  "started with it")


def _described(shape: Shape) -> dict[str, Any]:
    name, datatype, dims, _ = shape
    return {"name": name, "datatype": datatype, "shape": dims}


def _data_type(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
