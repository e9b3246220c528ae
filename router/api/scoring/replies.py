"""The shapes of answers of routes of scores, for the OpenAPI document; handlers build them as plain dicts."""

from typing import Any, Literal

from pydantic import BaseModel

from penstock.router.api.openai.replies import TextUsage
from penstock.router.api.scoring.bodies import VectorForm


class DocumentText(BaseModel):
    text: str


class Ranked(BaseModel):
    """A document, by its place in the request. Its text is there if it is asked for."""

    index: int
    relevance_score: float
    document: DocumentText | None = None


class Ranking(BaseModel):
    """The documents by their scores, the highest first."""

    id: str
    model: str
    results: list[Ranked]
    usage: TextUsage
    meta: dict[str, Any]


class CohereVectors(BaseModel):
    """The vectors of all texts in each form that was asked for, or plain ones."""

    id: str
    texts: list[str]
    embeddings: dict[VectorForm, list[list[float]] | list[list[int]] | list[str]] | list[list[float]]
    response_type: Literal["embeddings_by_type", "embeddings_floats"]
    meta: dict[str, Any]


class _Head(BaseModel):
    id: str
    object: Literal["list"]
    created: int
    model: str
    usage: TextUsage


class Score(BaseModel):
    index: int
    object: Literal["score"]
    score: float


class Scores(_Head):
    """A score for each pair, in their order."""

    data: list[Score]


class PooledData(BaseModel):
    """The vector or the scores of a text, or a vector for each of its tokens."""

    index: int
    object: Literal["pooling"]
    data: list[float] | list[list[float]] | str


class PooledList(_Head):
    data: list[PooledData]


class Classified(BaseModel):
    """The likeliest class of a text, and the scores of all."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class Classes(_Head):
    data: list[Classified]
