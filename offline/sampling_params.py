"""How a prompt is to be answered, by vLLM's names and with its defaults."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal


class RequestOutputKind(Enum):
    """Tells which outputs a stream yields: the answers so far, each time only their new part, or the end alone."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputsParams:
    """The form that an answer must have; one of these. A schema may be an object or JSON, a grammar is in Lark's
    notation, or in that of GBNF, with a rule `root ::= …`."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None

    def __post_init__(self) -> None:
        given = [name for name in self.__slots__ if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            raise ValueError("StructuredOutputsParams must have one of json, regex, choice, grammar and json_object. "
                             f"Given: {', '.join(given) or 'none'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """How to search for the likeliest answers to a prompt: as transformers' `generate(num_beams=beam_width)`."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    """0 alone: a search draws nothing."""
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False
    early_stopping: bool | Literal["never"] = False
    """True ends a search once there are as many answers as beams; False once no beam can become better than they are,
    if it ends where it is now; "never" once none can, wherever it ends."""
    num_return_sequences: int | None = None
    """How many answers are returned. Default: as many as beams."""
    stop: str | list[str] | tuple[str, ...] | None = None
    stop_token_ids: list[int] | tuple[int, ...] | None = None
    min_tokens: int = 0
    structured_outputs: StructuredOutputsParams | None = None


@dataclass(slots=True, kw_only=True)
class SamplingParams:
    """How to answer a prompt. Fields that are not here are not taken. Values are checked when they are used, for some
    limits are the model's."""

    n: int = 1
    best_of: int | None = None
    """How many answers are generated, of which the `n` with the highest logprob per token are kept. Default: `n`."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    """0 takes the likeliest token, always."""
    top_p: float = 1.0
    top_k: int = 0
    """0 and -1 stand for all tokens."""
    min_p: float = 0.0
    typical_p: float = 1.0
    seed: int | None = None
    """Default: one that follows from the seed of the `LLM`, and from how many prompts it has answered before."""
    stop: str | list[str] | tuple[str, ...] | None = None
    stop_token_ids: list[int] | tuple[int, ...] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = 16
    """None stands for as many as fit."""
    min_tokens: int = 0
    logprobs: int | None = None
    """How many of the likeliest tokens are reported at each position of an answer, beside its own."""
    prompt_logprobs: int | None = None
    """The same for the prompt."""
    detokenize: bool = True
    """Whether answers have a text, and not token ids alone."""
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    """Changes nothing: no tokenizer here writes spaces there that a model has not written."""
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: dict[int, float] | None = None
    bad_words: list[str] | None = None
    """Words that an answer never has. They are looked for as tokens, at the beginning of a text and behind a space."""
    allowed_token_ids: list[int] | None = None
    """The only tokens that an answer may have. Default: all."""
    truncate_prompt_tokens: int | None = None
    """How many tokens of the prompt are read, the last ones; -1 stands for as many as fit."""
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    """Which outputs `AsyncLLM` yields; `LLM` returns the end alone."""
