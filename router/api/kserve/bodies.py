"""Bodies of KServe's routes, and of Triton's extensions of them."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from penstock.router.shapes import Body


class InputBody(Body):
    """A tensor; its data follow the JSON if `parameters` have their size, `binary_data_size`."""

    name: str
    datatype: str
    shape: Annotated[list[int], Field(fail_fast=True)]
    parameters: dict[str, Any] | None = None
    data: Any = None


class OutputBody(Body):
    """The name of a tensor that is asked for; with the parameter `binary_data` its data follow the JSON."""

    name: str
    parameters: dict[str, Any] | None = None


class InferBody(Body):
    """The body of `POST …/infer`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{
        "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["A text"]}],
        "parameters": {"max_tokens": 4}}]})

    id: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: Annotated[list[InputBody], Field(fail_fast=True)]
    outputs: Annotated[list[OutputBody] | None, Field(fail_fast=True)] = None


class TextInputBody(Body):
    """The body of `POST …/generate` and `…/generate_stream`; further fields are settings, as `parameters` are."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [
        {"text_input": "A text", "max_tokens": 4, "bad_words": "", "stop_words": ""}]})

    id: str | None = None
    text_input: str
    parameters: dict[str, Any] | None = None


class IndexBody(Body):
    """The body of `POST /v2/repository/index`."""

    ready: bool | None = None


class RepositoryBody(Body):
    """The body of a request to load or unload a model, whose parameters are refused."""

    parameters: dict[str, Any] | None = None
