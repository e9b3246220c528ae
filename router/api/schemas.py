"""Bodies of requests: fields, types and defaults as TGI takes them. What values may be is `router.validation`'s."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, JsonValue

from router.api.float32 import nearest_float32


def _to_float32(value: float) -> float:
    """What is checked is what shards are sent."""
    try:
        return nearest_float32(value)
    except OverflowError:
        raise ValueError("must fit into 32 bits") from None


def _to_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _to_list_or_none(value: object) -> object:
    return [] if value is None else _to_list(value)


Float32 = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_to_float32)]
Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
UInt32 = Annotated[int, Field(ge=0, lt=2**32)]
UInt64 = Annotated[int, Field(ge=0, lt=2**64)]
NumericText = Annotated[str, Field(pattern="^[0-9]+$")]
"""A token id as a key of an object."""


MAX_BIASED_TOKENS = 1024


def _to_bias(value: object) -> object:
    """OpenAI's shape, an object from token ids to values; TGI's, a list with a value for each token; null is none.

    Counted before it is looked at, for there may be a million.
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
"""One stop string or several; null is none."""
TokenIds = Annotated[
    list[UInt32], FailFast(), BeforeValidator(_to_list_or_none, json_schema_input_type=list[UInt32] | None)]


class Body(BaseModel):
    """Types are exact, except that an integer is a number; fields that are not named here are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def _example(**fields: JsonValue) -> ConfigDict:
    """A body for the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Parameters(Body):
    """How to generate. None is the same as absent; where None is no choice, null is refused.

    The second group is not TGI's: other servers have these fields, and so have all our routes.
    """

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
    stop: Annotated[list[str], FailFast(), BeforeValidator(_to_list, json_schema_input_type=str | list[str])] = []
    truncate: UInt64 | None = None
    watermark: bool = False
    details: bool = False
    decoder_input_details: bool = False
    seed: UInt64 | None = None
    top_n_tokens: UInt32 | None = None
    grammar: Any = None
    """As TGI writes it; from routes that write it otherwise a `router.grammar.spec.GrammarSpec`."""
    adapter_id: str | None = None

    presence_penalty: Float32 | None = None
    min_p: Float32 | None = None
    min_tokens: UInt32 | None = None
    ignore_eos: bool = False
    stop_token_ids: TokenIds = []
    logit_bias: LogitBias = {}


class GenerateBody(Body):
    """`POST /generate`, `/generate_stream` and `/tokenize`. Without `parameters` an answer is sampled."""

    model_config = _example(inputs="def open(path):", parameters={"max_new_tokens": 20})

    inputs: str
    parameters: Parameters = Parameters(do_sample=True)


class CompatBody(GenerateBody):
    """`POST /`."""

    stream: bool = False


class StreamOptions(Body):
    """What a stream of OpenAI's carries beside tokens."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


MAX_LISTS = 10_000


def _to_prompts(value: list[Any]) -> list[str | tuple[int, ...]]:
    """Texts or token ids; a list of ids is one prompt. C code looks at the items, for there may be a million."""
    if not value:
        raise ValueError("Empty array detected. Do not use an empty array for the prompt.")
    kinds = set(map(type, value))
    if kinds == {str}:
        return value
    prompts = [value] if kinds == {int} else value
    if len(prompts) > MAX_LISTS:
        raise ValueError(f"supports up to {MAX_LISTS} lists of token ids. Given: {len(prompts)}")
    if not all(isinstance(ids, list) and set(map(type, ids)) <= {int} for ids in prompts):
        raise ValueError("must be a text, a list of texts, a list of token ids, or a list of lists of token ids")
    if any(ids and not 0 <= min(ids) <= max(ids) < 2**32 for ids in prompts):
        raise ValueError("token ids must be >= 0 and < 4294967296")
    return [tuple(ids) for ids in prompts]


class OpenAIBody(Body):
    """What OpenAI's routes share. None is the same as absent. The second group is other servers', not OpenAI's.

    Other fields are kept, for some of them ask for what is not built; the module that reads a body knows which.
    """

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    max_tokens: UInt32 | None = None
    max_completion_tokens: UInt32 | None = None
    temperature: Float32 | None = None
    top_p: Float32 | None = None
    frequency_penalty: Float32 | None = None
    presence_penalty: Float32 | None = None
    logit_bias: LogitBias = {}
    n: UInt32 | None = None
    seed: UInt64 | None = None
    stop: Stops = []
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    repetition_penalty: Float32 | None = None
    top_k: Int32 | None = None
    min_p: Float32 | None = None
    typical_p: Float32 | None = None
    watermark: bool | None = None
    min_tokens: UInt32 | None = None
    ignore_eos: bool | None = None
    stop_token_ids: TokenIds = []
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: UInt32 | None = None
    return_token_ids: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None


class CompletionBody(OpenAIBody):
    """`POST /v1/completions`."""

    model_config = _example(prompt="def open(path):", max_tokens=20)

    prompt: Annotated[
        list[Any],
        BeforeValidator(_to_list, json_schema_input_type=str | list[str] | list[UInt32] | list[list[UInt32]]),
        AfterValidator(_to_prompts)]
    best_of: UInt32 | None = None
    suffix: str | None = None
    echo: bool | None = None
    logprobs: UInt32 | None = None
