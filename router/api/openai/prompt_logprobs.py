"""The logprobs of a prompt's tokens, by vLLM's field."""

import asyncio
from typing import Any, NamedTuple

from penstock.router.api.openai.bodies import OpenAIBody
from penstock.router.errors import ValidationError
from penstock.router.generation.answer import Answer
from penstock.router.generation.float32 import shortest_float32
from penstock.router.text.tokenizer import Tokenizer


class TopAsked(NamedTuple):
    """How many of the likeliest tokens are wanted of each position, and the field that asks for so many."""

    field: str
    number: int | None


def top_logprobs(body: OpenAIBody, field: str, number: int | None) -> TopAsked:
    """Returns how many top logprobs are to be computed: those of the answer, by the `field` that has this `number`, and
    of the prompt. Raises ValidationError if those of the prompt are asked for where they can't be told."""
    of_prompt = body.prompt_logprobs
    if of_prompt is None:
        return TopAsked(field, number)
    if body.stream:
        raise ValidationError("`prompt_logprobs` is not supported when streaming tokens", "unsupported_parameter",
                              "prompt_logprobs")
    return TopAsked(field, number) if number is not None and number >= of_prompt else TopAsked(
        "prompt_logprobs", of_prompt)


async def told_prompt_logprobs(answer: Answer, body: OpenAIBody, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the field of a reply with the logprobs of the prompt that an answer is to; nothing if they were not asked
    for. They are told in a thread, for there may be 100,000 tokens."""
    if body.prompt_logprobs is None:
        return {}
    return {"prompt_logprobs": await asyncio.to_thread(_tell, answer, body.prompt_logprobs, tokenizer)}


def _tell(answer: Answer, number: int, tokenizer: Tokenizer) -> list[dict[str, Any] | None]:
    """Returns an object for each token of the prompt, by token id; the first follows nothing and has none."""
    known = answer.prompt_logprobs
    tops = known.top_logprobs or [()] * len(known.logprobs)
    told: list[dict[str, Any] | None] = [None]
    for token_id, logprob, rank, top in zip(
            answer.request.input_ids[1:], known.logprobs, known.ranks, tops, strict=True):
        each = {token_id: (logprob, rank)}
        each |= {id: (value, place) for place, (id, value) in enumerate(top[:number], 1)}
        told.append({str(id): {"logprob": shortest_float32(value), "rank": place,
                               "decoded_token": tokenizer.text_of(id)} for id, (value, place) in each.items()})
    return told
