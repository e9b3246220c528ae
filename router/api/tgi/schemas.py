"""Bodies of requests: fields, types and defaults as TGI takes them. generation/validation.py checks values."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, JsonValue

from penstock.router.generation.parameters import (
    Body,
    Float32,
    Int32,
    LogitBias,
    Parameters,
    Stops,
    TokenIds,
    UInt32,
    UInt64,
    to_list,
)


def _example(**fields: JsonValue) -> ConfigDict:
    """A body for the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


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
        BeforeValidator(to_list, json_schema_input_type=str | list[str] | list[UInt32] | list[list[UInt32]]),
        AfterValidator(_to_prompts)]
    best_of: UInt32 | None = None
    suffix: str | None = None
    echo: bool | None = None
    logprobs: UInt32 | None = None
