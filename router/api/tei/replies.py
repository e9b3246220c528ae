"""The shapes of answers of TEI's routes, for the OpenAPI document; handlers build them as plain dicts."""

from pydantic import BaseModel


class SparseValue(BaseModel):
    """A number of a sparse vector, and its place."""

    index: int
    value: float


class Prediction(BaseModel):
    """The score of a label."""

    score: float
    label: str


class Rank(BaseModel):
    """The place of a text in the request, and its score."""

    index: int
    text: str | None = None
    score: float


class SimpleToken(BaseModel):
    """A token of a text; `start` and `stop` count bytes of it. Tokens that are added to every text have none."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class EmbeddingModel(BaseModel):
    pooling: str


class ClassifierModel(BaseModel):
    id2label: dict[str, str]
    label2id: dict[str, int]


class ModelType(BaseModel):
    """The kind of the model: one of the three is there."""

    embedding: EmbeddingModel | None = None
    classifier: ClassifierModel | None = None
    reranker: ClassifierModel | None = None


class PoolingInfo(BaseModel):
    """The facts of a model that makes vectors or scores, and of its server."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: ModelType
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None
    model_device_type: str
    vector_size: int
    numerics: str
    deterministic: bool
    model_implementation: str


Vectors = list[list[float]]
TokenVectors = list[list[list[float]]]
SparseVectors = list[list[SparseValue]]
Predictions = list[Prediction] | list[list[Prediction]]
