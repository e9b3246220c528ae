"""The tokens of texts, and the texts of tokens."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import orjson

from penstock.router.api.tei.bodies import DecodeBody, TokenizeBody
from penstock.router.errors import EmptyText, ValidationError
from penstock.router.generation.service import Service
from penstock.router.generation.text_tokens import split
from penstock.router.pooling.numbers import check_number
from penstock.router.pooling.validation import prompt_of
from penstock.router.text.tokenizer import Tokenizer


async def tokenize(service: Service, text: str, add_special_tokens: bool) -> AsyncGenerator[list[dict[str, Any]]]:
    """Yields the tokens of a text, some at a time. Those that are added to every text have no place in it. Raises
    ValidationError."""
    async with aclosing(split(service, text, add_special_tokens)) as parts:
        async for part in parts:
            yield [_token(token, service.tokenizer) for token in orjson.loads(part)]


def _token(token: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    if token["start"] == token["stop"] and tokenizer.is_special(token["id"]):
        return {"id": token["id"], "text": tokenizer.decode([token["id"]]), "special": True, "start": None,
                "stop": None}
    return {"id": token["id"], "text": token["text"], "special": False, "start": token["start"],
            "stop": token["stop"]}


def check_texts(service: Service, body: TokenizeBody) -> list[str]:
    """Returns the texts that are to be split, each with the prompt before it. Raises ValidationError."""
    check_number(body.inputs, service.limits, "inputs")
    prompt = prompt_of(body.prompt_name, service)
    return [prompt + text for text in body.inputs]


async def decode(service: Service, body: DecodeBody) -> list[str]:
    """Returns the text of each list of ids. Raises ValidationError."""
    check_number(body.ids, service.limits, "ids")
    return [await _decoded(service.tokenizer, ids, body.skip_special_tokens) for ids in body.ids]


async def _decoded(tokenizer: Tokenizer, ids: Sequence[int], skips_special: bool) -> str:
    if not ids:
        raise EmptyText("ids")
    if (largest := max(ids)) >= tokenizer.num_ids:
        raise ValidationError(f"`ids` must have token ids < {tokenizer.num_ids}, the tokenizer's vocabulary. "
                              f"Given: {largest}")
    return await tokenizer.decode_many(ids, skips_special)
