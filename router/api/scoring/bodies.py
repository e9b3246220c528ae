"""The bodies of routes of scores: fields, types and defaults as Cohere, Jina and vLLM take them."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from penstock.router.api.openai.embedding_bodies import Inputs, PooledBody, VectorBody
from penstock.router.generation.parameters import Int32, UInt32, to_list
from penstock.router.shapes import Body


class Document(Body):
    """A document as an object."""

    text: str


def _to_text(document: object) -> object:
    """Returns the text of a document that is an object with nothing but a text."""
    if isinstance(document, dict) and document.keys() == {"text"}:
        return document["text"]
    return document


DocumentText = Annotated[str, BeforeValidator(_to_text, json_schema_input_type=str | Document)]
Texts = Annotated[
    list[DocumentText], Field(min_length=1, fail_fast=True),
    BeforeValidator(to_list, json_schema_input_type=str | list[str | Document])]
"""One text or several."""


class ScoredBody(PooledBody):
    """The fields that routes of scores share."""

    instruction: Annotated[str, Field(min_length=1)] | None = None
    use_activation: bool | None = None


class RerankBody(ScoredBody):
    """The body of `POST /v1/rerank` and `/v2/rerank`."""

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"query": "What is a penstock?", "documents": ["A pipe that leads water to a turbine", "A pen for stock"]}]})

    query: str
    documents: Annotated[list[DocumentText], Field(min_length=1, fail_fast=True)]
    top_n: UInt32 | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Annotated[UInt32, Field(ge=1)] | None = None
    max_tokens_per_query: Annotated[UInt32, Field(ge=1)] | None = None


class ScoreBody(ScoredBody):
    """The body of `POST /v1/score`: two sides, by any of vLLM's names for them."""

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"queries": "What is a penstock?", "documents": ["A pipe that leads water to a turbine", "A pen for stock"]}]})

    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None
    text_1: Texts | None = None
    text_2: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None


class PoolingBody(VectorBody):
    """The body of `POST /pooling`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": ["A text", "Another one"]}]})

    task: Literal["embed", "classify", "token_embed"] | None = None


class ClassifyBody(PooledBody):
    """The body of `POST /classify`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": "A text"}]})

    input: Inputs
    use_activation: bool | None = None


class CohereTextPart(Body):
    type: Literal["text"]
    text: str


class CohereInput(Body):
    """A text in parts."""

    content: Annotated[list[CohereTextPart], Field(min_length=1, fail_fast=True)]


VectorForm = Literal["float", "base64", "binary", "ubinary"]


class CohereEmbedBody(Body):
    """The body of `POST /v2/embed` and `/v1/embed`; `texts` may be parts in `inputs`."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [
        {"texts": ["A text", "Another one"], "input_type": "search_document", "embedding_types": ["float"]}]})

    model: str | None = None
    texts: Annotated[list[str], Field(min_length=1, fail_fast=True)] | None = None
    inputs: Annotated[list[CohereInput], Field(min_length=1, fail_fast=True)] | None = None
    input_type: Literal["search_query", "search_document", "classification", "clustering"] | None = None
    embedding_types: Annotated[list[VectorForm], Field(fail_fast=True)] | None = None
    output_dimension: UInt32 | None = None
    max_tokens: Annotated[UInt32, Field(ge=1)] | None = None
    truncate: Literal["NONE", "START", "END"] | None = None
    priority: Int32 | None = None
