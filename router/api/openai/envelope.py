"""The common parts of OpenAI's routes: the head of an answer, and its usage."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.router.api.openai.bodies import OpenAIBody
from penstock.router.api.openai.service_tier import served_tier
from penstock.router.generation.answer import Answer
from penstock.router.generation.service import Service

DONE = b"[DONE]"
"""The data of a stream's last event."""


class Whole(NamedTuple):
    """A whole answer: the object that is sent as JSON, and the headers beside it."""

    content: dict[str, Any]
    headers: dict[str, str]


def head(service: Service, body: OpenAIBody, kind: str, answer_id: str) -> dict[str, Any]:
    """Returns the head of a whole answer and of every chunk. Any model is served, and named as it was asked for; the
    tier by which it is answered is told if one was asked for.

    `kind` is the value of `object`.
    """
    tier = served_tier(body, service.limits)
    info = service.info
    return {
        "object": kind,
        "id": answer_id,
        "created": int(time.time()),
        "model": info.model_id if body.model in (None, "tgi") else body.model,
        "system_fingerprint": f"{info.version}-native",
        **({} if tier is None else {"service_tier": tier}),
    }


def usage(answers: Sequence[Answer], per_prompt: int = 1, num_thinking_tokens: int | None = None) -> dict[str, Any]:
    """Returns the usage of answers that have ended, in the order of their indices, of which each prompt has
    `per_prompt`."""
    num_tokens = sum(answer.ending.num_tokens for answer in answers if answer.ending)
    return count_usage(answers, num_tokens, per_prompt, num_thinking_tokens)


def count_usage(
    answers: Sequence[Answer], num_tokens: int, per_prompt: int = 1, num_thinking_tokens: int | None = None
) -> dict[str, Any]:
    """Returns the usage of answers with `num_tokens` so far; cached tokens are those found in the prefix cache,
    prediction tokens those that were guessed, reasoning tokens those of thoughts, None where there are none."""
    prompts = answers[::per_prompt]
    num_prompt_tokens = sum(len(answer.request.input_ids) for answer in prompts)
    thoughts = {} if num_thinking_tokens is None else {"reasoning_tokens": num_thinking_tokens}
    details = {**_guesses(answers), **thoughts}
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_tokens,
        "total_tokens": num_prompt_tokens + num_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(answer.hit_tokens for answer in prompts)},
        **({"completion_tokens_details": details} if details else {}),
    }


def _guesses(answers: Sequence[Answer]) -> dict[str, Any]:
    """Returns how many tokens were guessed, where any are."""
    each = [answer.guesses for answer in answers if answer.guesses]
    accepted = sum(guesses.accepted for guesses in each)
    return {
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": sum(guesses.drafted for guesses in each) - accepted} if each else {}
