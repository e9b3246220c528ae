"""The logprobs of an answer's tokens, as OpenAI's routes of conversations tell them."""

from typing import Any

from penstock.router.engine.stream import Token
from penstock.router.generation.float32 import shortest_float32
from penstock.router.text.tokenizer import Tokenizer


def name_of(tokenizer: Tokenizer, token_id: int, *, is_id: bool) -> str:
    """Returns the name of a token: its text, or `token_id:5`, as vLLM has it, for two tokens may have one text."""
    return f"token_id:{token_id}" if is_id else tokenizer.text_of(token_id)


def token_logprobs(
    tokenizer: Tokenizer, token: Token, most_top: int | None = None, *, by_ids: bool = False
) -> dict[str, Any]:
    """Returns the text and the logprob of a token, and those of the likeliest tokens in its place, of `most_top` if
    more are known. With `by_ids` they are called by their ids."""
    top = [_logprob(tokenizer, token_id, logprob, by_ids) for token_id, logprob in token.top_logprobs[:most_top]]
    return {**_logprob(tokenizer, token.id, token.logprob, by_ids), "top_logprobs": top}


def _logprob(tokenizer: Tokenizer, token_id: int, logprob: float, is_id: bool) -> dict[str, Any]:
    """A token that is only a part of a character has no bytes of its own."""
    text = tokenizer.text_of(token_id)
    return {"token": name_of(tokenizer, token_id, is_id=is_id), "logprob": shortest_float32(logprob),
            "bytes": None if "\ufffd" in text else list(text.encode())}
