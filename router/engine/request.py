"""A request as the engine takes it: valid, tokenised, complete."""

from dataclasses import dataclass

from penstock.router.grammar.matcher import Grammar
from penstock.router.scheduling.plan import Sampling
from penstock.router.tracing.trace import Trace


@dataclass(frozen=True, slots=True)
class Request:
    """What to generate: one answer to one prompt. Made by generation/validation.py only, so nothing is checked again.

    `max_new_tokens` is what fits: prompt + max_new_tokens never exceeds the limit on total tokens. The answer's text is
    cut at the end of a stop string if `keep_stop`, otherwise before it. Neither a stop string nor one of
    `stop_token_ids`, which end it as the model's own end token does, ends it before `sampling.min_tokens`.
    """

    input_ids: tuple[int, ...]
    sampling: Sampling
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    keep_stop: bool = True
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    grammar: Grammar | None = None
    """What the answer must be a sentence of."""
    wants_prompt_logprobs: bool = False
    shown_ids: frozenset[int] = frozenset()
    """Special tokens that are part of the answer's text."""
    trace: Trace | None = None
    """Where what happens to it is noted, if it is traced."""
