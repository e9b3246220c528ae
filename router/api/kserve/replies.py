"""The shapes of answers of KServe's routes, for the OpenAPI document; handlers build them as plain dicts."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class KserveError(BaseModel):
    error: str


class Live(BaseModel):
    live: bool


class Ready(BaseModel):
    ready: bool


class ModelReady(BaseModel):
    name: str
    ready: bool


class ServerMetadata(BaseModel):
    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """A tensor; a -1 in its shape stands for any number."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class Duration(BaseModel):
    """How many, and how many nanoseconds they took together."""

    count: int
    ns: int


class InferenceStats(BaseModel):
    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration


class ModelStats(BaseModel):
    name: str
    version: str
    inference_count: int
    execution_count: int
    inference_stats: InferenceStats


class Statistics(BaseModel):
    model_stats: list[ModelStats]


class IndexedModel(BaseModel):
    name: str
    version: str
    state: str
    reason: str


class OutputTensor(BaseModel):
    """A tensor; its data follow the JSON if `parameters` have their size."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class InferredTensors(BaseModel):
    id: str | None = None
    model_name: str
    model_version: str
    outputs: list[OutputTensor]


class GeneratedTensors(BaseModel):
    """The outputs by their names: of a model that makes text `text_output`."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    model_name: str
    model_version: str
    text_output: str | list[str] | None = None
