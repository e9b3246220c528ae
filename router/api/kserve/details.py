"""The details of answers, as KServe's protocol for generating text has them."""

from typing import Any

from penstock.router.api.kserve.generation import Part, Whole
from penstock.router.engine.stream import Token
from penstock.router.generation.answer import Answer
from penstock.router.generation.float32 import shortest_float32


def whole_details(whole: Whole) -> dict[str, Any] | list[dict[str, Any]]:
    """Returns the details of an answer, or a list of those of several."""
    each = [{"finish_reason": _reason(answer), "logprobs": [_token(token) for token in tokens]}
            for answer, tokens in zip(whole.answers, whole.tokens, strict=True)]
    return each[0] if len(each) == 1 else each


def stream_details(part: Part) -> dict[str, Any]:
    """Returns the details of a token; those of the last tell why the answer has ended."""
    return {"finish_reason": _reason(part.answer), "token": _token(part.event.token)}


def _reason(answer: Answer) -> str | None:
    return None if answer.ending is None else answer.ending.finish_reason.value


def _token(token: Token) -> dict[str, Any]:
    return {"id": token.id, "text": token.text, "logprob": shortest_float32(token.logprob),
            "special": token.is_special}


