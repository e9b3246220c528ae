"""The fields of `/v1/embeddings`, as OpenAI and vLLM take them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from penstock.router.api.openai.bodies import to_texts
from penstock.router.generation.parameters import Int32, Salt, UInt32, to_list
from penstock.router.shapes import Body

Inputs = Annotated[
    list[Any],
    BeforeValidator(to_list, json_schema_input_type=str | list[str] | list[UInt32] | list[list[UInt32]]),
    Field(min_length=1), AfterValidator(to_texts)]
"""Texts, or tuples of token ids; a list of ids is one of them."""


class PooledBody(Body):
    """The fields that routes of vectors and of scores share. Null is the same as absent.

    Other fields are kept, for some are refused by name: `other_fields` has the rule.
    """

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    truncate_prompt_tokens: Annotated[Int32, Field(ge=-1)] | None = None
    """-1 stands for as many as the model takes."""
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool | None = None
    priority: Int32 | None = None
    cache_salt: Salt | None = None


class VectorBody(PooledBody):
    """The fields of vectors of texts."""

    input: Inputs
    dimensions: UInt32 | None = None
    encoding_format: Literal["float", "base64"] | None = None
    prompt_name: str | None = None
    normalize: bool | None = None
    use_activation: bool | None = None
    """vLLM's name for `normalize`."""

    @property
    def is_normalized(self) -> bool:
        """Whether vectors are scaled to a length of 1, which they are unless either field says otherwise."""
        return self.normalize is not False and self.use_activation is not False


class EmbeddingBody(VectorBody):
    """The body of `POST /v1/embeddings`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": ["A text", "Another one"]}]})
