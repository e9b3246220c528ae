"""The parameters of a generation: fields, types and defaults as TGI takes them. validation.py checks values."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, FailFast, Field

from penstock.router.generation.float32 import nearest_float32
from penstock.router.grammar.forms import check_grammar
from penstock.router.shapes import Body


def _to_float32(value: float) -> float:
    """Returns the float32 that shards are sent, so that rules are checked on the number that is used."""
    try:
        return nearest_float32(value)
    except OverflowError:
        raise ValueError("must fit into 32 bits") from None


def to_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _to_list_or_none(value: object) -> object:
    return [] if value is None else to_list(value)


Float32 = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_to_float32)]
Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
UInt32 = Annotated[int, Field(ge=0, lt=2**32)]
UInt64 = Annotated[int, Field(ge=0, lt=2**64)]
NumericText = Annotated[str, Field(pattern="^[0-9]+$")]
"""A token id that is the key of an object."""


MAX_BIASED_TOKENS = 1024


def _to_bias(value: object) -> object:
    """Reads OpenAI's shape, an object from token ids to values, or TGI's, a list with a value per token; null is none.

    It counts the values before it looks at them, for there may be a million.
    """
    if isinstance(value, list):
        number = len(value) - value.count(0)
        pairs: Iterable[tuple[object, object]] = enumerate(value)
    elif isinstance(value, dict):
        number = len(value)
        pairs = ((int(key) if isinstance(key, str) and key.isdecimal() else key, bias) for key, bias in value.items())
    else:
        return {} if value is None else value
    if number > MAX_BIASED_TOKENS:
        raise ValueError(f"supports up to {MAX_BIASED_TOKENS} token ids. Given: {number}")
    return {key: bias for key, bias in pairs if bias != 0 or bias is False or isinstance(value, dict)}


LogitBias = Annotated[
    dict[UInt32, Float32], FailFast(),
    BeforeValidator(_to_bias, json_schema_input_type=dict[NumericText, Float32] | list[Float32] | None)]
Stops = Annotated[
    list[str], FailFast(), BeforeValidator(_to_list_or_none, json_schema_input_type=str | list[str] | None)]
"""One stop string or several; null means none."""
TokenIds = Annotated[
    list[UInt32], FailFast(), BeforeValidator(_to_list_or_none, json_schema_input_type=list[UInt32] | None)]

AllowedTokenIds = Annotated[list[UInt32], Field(min_length=1, fail_fast=True)]
MAX_SALT = 1024
Salt = Annotated[str, Field(min_length=1, max_length=MAX_SALT)]
"""Keeps the keys and values of those who have it apart from all others'."""


class Parameters(Body):
    """How to generate an answer. Null is the same as absent where it is allowed.

    The second group is not TGI's: other servers have these fields. Other fields are kept, for some are refused by name:
    `other_fields` has the rule.
    """

    model_config = ConfigDict(extra="allow")

    best_of: UInt64 | None = None
    temperature: Float32 | None = None
    repetition_penalty: Float32 | None = None
    frequency_penalty: Float32 | None = None
    top_k: Int32 | None = None
    top_p: Float32 | None = None
    typical_p: Float32 | None = None
    do_sample: bool = False
    max_new_tokens: UInt32 | None = None
    return_full_text: bool | None = None
    stop: Annotated[list[str], FailFast(), BeforeValidator(to_list, json_schema_input_type=str | list[str])] = []
    truncate: UInt64 | None = None
    watermark: bool = False
    details: bool = False
    decoder_input_details: bool = False
    seed: UInt64 | None = None
    top_n_tokens: UInt32 | None = None
    grammar: Annotated[Any, AfterValidator(check_grammar)] = None
    """A grammar as TGI's routes take it, or a `GrammarSpec` from routes that write it otherwise."""
    adapter_id: str | None = None

    presence_penalty: Float32 | None = None
    min_p: Float32 | None = None
    min_tokens: UInt32 | None = None
    ignore_eos: bool = False
    stop_token_ids: TokenIds = []
    logit_bias: LogitBias = {}
    bad_words: Stops = []
    allowed_token_ids: AllowedTokenIds | None = None
    cache_salt: Annotated[Salt | None, Field(repr=False)] = None
    """Keys and values are shared only with requests that have the same; no answer depends on it, and no digest."""
    priority: Annotated[Int32 | None, Field(repr=False)] = None
    """Where among the requests that wait it is put; no answer depends on it, and no digest of what was asked."""
    deadline_ms: Annotated[UInt32 | None, Field(repr=False)] = None
    """How long after its request's receipt the whole answer may come; no answer depends on it, and no digest."""
    num_beams: UInt32 | None = None
    num_return_sequences: UInt32 | None = None
    length_penalty: Float32 | None = None
    early_stopping: bool | Literal["never"] | None = None
    n: UInt64 | None = None
    """How many answers to return; OpenAI's routes have it elsewhere."""
