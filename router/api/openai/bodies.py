"""Bodies of OpenAI's routes: fields, types and defaults as TGI, OpenAI and vLLM take them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from penstock.router.api.openai.functions import FunctionChoice, Functions
from penstock.router.api.openai.tools import MAX_TOOLS, ToolChoice
from penstock.router.chat.messages import Message, count_items
from penstock.router.chat.tool_bodies import ToolBody
from penstock.router.generation.parameters import (
    AllowedTokenIds,
    Float32,
    Int32,
    LogitBias,
    Salt,
    Stops,
    TokenIds,
    UInt32,
    to_list,
)
from penstock.router.grammar.forms import check_response_format
from penstock.router.shapes import Body
from penstock.router.turns.thinking import ThinkingWish

MAX_LISTS = 10_000


Seed = Annotated[int, Field(ge=-(2**63), lt=2**64), AfterValidator(lambda seed: seed % 2**64)]
"""OpenAI's are of 64 bits with a sign."""


ThinkingBudget = Annotated[
    Annotated[int, Field(ge=0, lt=2**32)] | None,
    BeforeValidator(lambda budget: None if budget == -1 else budget,
                    json_schema_input_type=Annotated[int, Field(ge=-1, lt=2**32)] | None)]
"""The most tokens of thinking; -1 is any number to some clients."""


class StreamOptions(Body):
    """The options of a stream of OpenAI's routes beside tokens."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class OpenAIBody(Body):
    """The fields that OpenAI's routes share. Null is the same as absent. The second group is that of other servers.

    Other fields are kept, for some are refused by name: `other_fields` has the rule.
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
    seed: Seed | None = None
    stop: Stops = []
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None

    repetition_penalty: Float32 | None = None
    top_k: Int32 | None = None
    min_p: Float32 | None = None
    typical_p: Float32 | None = None
    watermark: bool | None = None
    min_tokens: UInt32 | None = None
    use_beam_search: bool | None = None
    length_penalty: Float32 | None = None
    early_stopping: bool | Literal["never"] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: TokenIds = []
    add_special_tokens: bool | None = None
    priority: Int32 | None = None
    deadline_ms: UInt32 | None = None
    truncate_prompt_tokens: Annotated[Int32, Field(ge=-1)] | None = None
    """-1 stands for as many as the model takes."""
    bad_words: Stops = []
    allowed_token_ids: AllowedTokenIds | None = None
    cache_salt: Salt | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: UInt32 | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    response_format: Annotated[dict[str, Any], AfterValidator(check_response_format)] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    ebnf: Any = None

    @property
    def is_greedy(self) -> bool:
        """Whether no token is drawn: so few are left by `top_p`, too, if it is 0, and beams draw none."""
        return self.temperature == 0 or self.top_p == 0 or self.num_beams is not None

    @property
    def keeps_stop(self) -> bool:
        """Whether the text of an answer has the stop string that ends it."""
        return bool(self.include_stop_str_in_output)

    @property
    def num_beams(self) -> int | None:
        """How many beams search for answers, all of which are given; None if no search is asked for."""
        return (1 if self.n is None else self.n) if self.use_beam_search else None


def _to_prompts(value: list[Any]) -> list[str | tuple[int, ...]]:
    if not value:
        raise PydanticCustomError("too_short", "Empty array detected. Do not use an empty array for the prompt.")
    return to_texts(value)


def to_texts(value: list[Any]) -> list[str | tuple[int, ...]]:
    """Returns texts or tuples of token ids; a list of ids is one of them. C code looks at the items, which may be a
    million."""
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


class CompletionBody(OpenAIBody):
    """The body of `POST /v1/completions`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt": "def open(path):", "max_tokens": 20}]})

    prompt: Annotated[
        list[Any],
        BeforeValidator(to_list, json_schema_input_type=str | list[str] | list[UInt32] | list[list[UInt32]]),
        AfterValidator(_to_prompts)]
    best_of: UInt32 | None = None
    suffix: str | None = None
    echo: bool | None = None
    logprobs: UInt32 | None = None


class ChatBody(OpenAIBody):
    """The body of `POST /v1/chat/completions` and `/chat_tokenize`. The second group is TGI's and vLLM's, the third
    variables that some chat templates read.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [
        {"messages": [{"role": "user", "content": "What does json.dumps do?"}], "max_tokens": 20}]})

    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True), BeforeValidator(count_items)]
    logprobs: bool | None = None
    top_logprobs: UInt32 | None = None
    tools: Annotated[list[ToolBody], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: Functions | None = None
    function_call: FunctionChoice | None = None

    tool_prompt: str | None = None
    echo: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    thinking_token_budget: ThinkingBudget = None
    thinking_budget: ThinkingBudget = None
    reasoning_budget_tokens: ThinkingBudget = None

    @property
    def thinking(self) -> ThinkingWish:
        """The wish of how the model is to think."""
        budgets = {name: value for name in ("thinking_token_budget", "thinking_budget", "reasoning_budget_tokens")
                   if (value := getattr(self, name)) is not None}
        name = min(budgets, key=budgets.__getitem__, default="thinking_token_budget")
        return ThinkingWish(effort=self.reasoning_effort, budget=budgets.get(name), budget_name=name)
