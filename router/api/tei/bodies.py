"""Bodies of TEI's routes: fields, types and defaults as TEI takes them."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from penstock.router.generation.parameters import UInt32
from penstock.router.shapes import Body

Text = str | tuple[int, ...]
"""A text, or its token ids."""
Sequence = str | tuple[str, str]
"""A text, or a pair of texts."""
_TEXTS = "must be a text, a list of token ids, or a list of texts and of lists of token ids"
_SEQUENCES = "must be a text, a pair of texts, or a list of lists of one text or two"
_IDS = "must be a list of token ids, or a list of lists of them"


class Sequences(NamedTuple):
    """The texts and pairs that are to be scored, and whether the client sent them as a list of lists."""

    each: list[Sequence]
    is_batch: bool


def _is_ids(value: object) -> bool:
    """Tells whether a value is a list of numbers. C code looks at them, for there may be a million."""
    return isinstance(value, list) and set(map(type, value)) <= {int}


def _to_ids(value: Any) -> tuple[int, ...]:
    if value and not 0 <= min(value) <= max(value) < 2**32:
        raise ValueError("token ids must be >= 0 and < 4294967296")
    return tuple(value)


def _to_texts(value: Any) -> list[Text]:
    """Returns texts and token ids; a list of ids is one text."""
    if isinstance(value, str):
        return [value]
    if value and _is_ids(value):
        return [_to_ids(value)]
    if not isinstance(value, list) or not all(isinstance(each, str) or _is_ids(each) for each in value):
        raise PydanticCustomError("value_error", _TEXTS)
    return [each if isinstance(each, str) else _to_ids(each) for each in value]


def _to_sequences(value: Any) -> Sequences:
    """Returns a text or a pair, or several of either."""
    is_batch = isinstance(value, list) and bool(value) and isinstance(value[0], list)
    each = value if is_batch else [value if isinstance(value, list) else [value]]
    if not all(isinstance(one, list) and 1 <= len(one) <= 2 and set(map(type, one)) == {str} for one in each):
        raise PydanticCustomError("value_error", _SEQUENCES)
    return Sequences([one[0] if len(one) == 1 else (one[0], one[1]) for one in each], is_batch)


def _to_batch(value: Any) -> list[tuple[int, ...]]:
    """Returns the ids of each text; a list of ids is those of one."""
    each = [value] if value and _is_ids(value) else value
    if not isinstance(each, list) or not all(map(_is_ids, each)):
        raise PydanticCustomError("value_error", _IDS)
    return [_to_ids(ids) for ids in each]


class CutBody(Body):
    """The fields that say what becomes of a text of too many tokens."""

    truncate: bool | None = None
    truncation_direction: Literal["Left", "Right", "left", "right"] = "Right"
    adapter_id: str | None = None
    """Penstock's addition: the name of the adapter that is to answer."""

    @property
    def keeps_end(self) -> bool:
        return self.truncation_direction.lower() == "left"


class TextsBody(CutBody):
    """The body of `POST /embed_all` and `/embed_sparse`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": ["A text", "Another one"]}]})

    inputs: Annotated[
        Any, BeforeValidator(_to_texts, json_schema_input_type=str | list[UInt32] | list[str | list[UInt32]])]
    prompt_name: str | None = None


class EmbedBody(TextsBody):
    """The body of `POST /embed`."""

    normalize: bool = True
    dimensions: UInt32 | None = None
    encoding_format: Literal["float"] | None = None
    """The one format that clients of several servers may ask for; other ones are for `/v1/embeddings`."""


class HubParameters(Body):
    """The parameters that clients of the Hub's API send for a classification."""

    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None
    top_k: Annotated[UInt32, Field(ge=1)] | None = None


class PredictBody(CutBody):
    """The body of `POST /predict`. With `parameters` it is one of the Hub's API, whose answers are always lists of
    lists."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": "A text"}]})

    inputs: Annotated[
        Any, BeforeValidator(_to_sequences, json_schema_input_type=str | list[str] | list[list[str]])]
    raw_scores: bool = False
    parameters: HubParameters | None = None


class RerankBody(CutBody):
    """The body of `POST /rerank`."""

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"query": "What is a penstock?", "texts": ["A pipe that leads water to a turbine", "A pen for stock"]}]})

    query: str
    texts: Annotated[list[str], Field(fail_fast=True)]
    raw_scores: bool = False
    return_text: bool = False


class SimilarityInputs(Body):
    """A text, and those that it is compared with."""

    source_sentence: str
    sentences: Annotated[list[str], Field(fail_fast=True)]


class SimilarityParameters(CutBody):
    """How the texts of a comparison are read."""

    prompt_name: str | None = None


class SimilarityBody(Body):
    """The body of `POST /similarity`."""

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"inputs": {"source_sentence": "A text", "sentences": ["Another one", "A third"]}}]})

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None


def _to_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class TokenizeBody(Body):
    """The body of `POST /tokenize`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": "A text"}]})

    inputs: Annotated[
        list[str], Field(fail_fast=True), BeforeValidator(_to_list, json_schema_input_type=str | list[str])]
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeBody(Body):
    """The body of `POST /decode`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": [101, 102]}]})

    ids: Annotated[Any, BeforeValidator(_to_batch, json_schema_input_type=list[UInt32] | list[list[UInt32]])]
    skip_special_tokens: bool = True
